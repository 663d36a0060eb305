"""Why a training loss does not come down, as far as losses, gradients and weights tell."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, NamedTuple

from vinedresser.rules.advice import Advice
from vinedresser.rules.faults import Fault
from vinedresser.rules.signals.gradient_norms import GradientNorms
from vinedresser.rules.signals.learning_rate import LearningRate
from vinedresser.rules.signals.loss_progress import LossProgress

if TYPE_CHECKING:
    from vinedresser.capture.store.step import Step

__all__ = ["Diagnosis", "LossDiagnosis"]

# A loss this share above its start has risen, however noisy it is.
_RISEN = 0.5
# Norms of the weights that change by less than this share did not train.
_UNMOVED = 1e-3
_ONE_BATCH = (
    "train on one batch until its loss is near zero: if that fails look at model, loss and "
    "learning rate, if not at the data"
)


class Diagnosis(NamedTuple):
    """What was seen, the likely cause, what to try, and the figures behind it.

    Attributes:
        seen: a clause with the figures.
        cause: the likely cause.
        remedy: what to try.
        fault: the kind of fault that it is a sign of.
        correction: the remedy as settings, where the learning rate is known (`Finding`).
        evidence: the figures behind it.
    """

    seen: str
    cause: str
    remedy: str
    fault: Fault
    correction: dict[str, float]
    evidence: dict[str, Any]


class LossDiagnosis:
    """Keeps what is needed to explain a loss that does not come down.

    Attributes:
        rate: the learning rate, where the run's hyperparameters have one.
    """

    def __init__(self) -> None:
        self.rate: LearningRate | None = None
        self._gradients = GradientNorms()
        self._weights: dict[str, float] = {}
        self._moved = math.nan

    def add(self, step: Step) -> None:
        """Take in a train step."""
        if step.mode != "train":
            return
        self._gradients.add(step)
        norms = step.reduction_of("weights", "l2")
        changes = [
            abs(norm - before) / before
            for name, norm in norms.items()
            if (before := self._weights.setdefault(name, norm)) > 0
        ]
        if changes:
            self._moved = max(changes)

    def explain(
        self, progress: LossProgress, start: float, level: float, *, blown: bool
    ) -> Diagnosis:
        """Return the diagnosis of a loss.

        Args:
            progress: of the loss.
            start: loss at the start.
            level: loss now.
            blown: it stays far above its first value.
        """
        low = min(start, progress.first)
        rise = progress.peak / abs(low) if low else math.inf
        evidence = {"rise": rise, "weights_moved": self._moved}
        if blown or progress.thrown_up() or level - low > _RISEN * abs(low):
            return self._thrown_up(progress, low, level, rise, evidence)
        if start - progress.lowest > 0.5 * abs(start):
            return Diagnosis(
                f"fell from {start:.4g} to {progress.lowest:.4g} (step {progress.lowest_step}) and "
                f"is back at {level:.4g}",
                "it had learned and lost it again: the learning rate is too high for this stage, "
                "or the data changed",
                f"{self._smaller(rise)}; a decaying learning rate; clip the gradient norm",
                "learning_rate_too_high",
                self._lowered(rise),
                evidence,
            )
        seen = f"stands at {level:.4g} after a start at {start:.4g}{_chance(level)}"
        fault, advice = self.standing()
        low = fault == "learning_rate_too_low"
        correction = self.rate.raised() if low and self.rate else {}
        return Diagnosis(seen, *advice, fault, correction, evidence)

    def _thrown_up(
        self,
        progress: LossProgress,
        start: float,
        level: float,
        rise: float,
        evidence: dict[str, Any],
    ) -> Diagnosis:
        stays = f"stays at {level:.4g}" if level > start else f"has only come back to {level:.4g}"
        return Diagnosis(
            f"rose from {start:.4g} to {progress.peak:.4g} ({rise:.2g}-fold, blocks from step "
            f"{progress.peak_step}) and {stays}",
            f"the learning rate is too high: the loss rose {rise:.2g}-fold",
            f"{self._smaller(rise)}; warm it up, clip the gradient norm",
            "learning_rate_too_high",
            self._lowered(rise),
            evidence,
        )

    def _smaller(self, rise: float) -> str:
        if self.rate is None:
            return "a tenth of the learning rate"
        return self.rate.smaller(rise)

    def _lowered(self, rise: float) -> dict[str, float]:
        return {} if self.rate is None else self.rate.lowered(rise)

    def standing(self) -> tuple[Fault, Advice]:
        """Return the fault, its cause and remedy, of a loss that hardly moves."""
        norms, zeros, tensors = (
            self._gradients.norms,
            self._gradients.zeros,
            self._gradients.tensors,
        )
        if not norms:
            return "not_learning", Advice(
                cause="the model does not learn: learning rate, initial weights, inputs or labels",
                remedy=_ONE_BATCH,
            )
        if 2 * zeros >= tensors:
            return "not_learning", Advice(
                cause=f"no gradient arrives: it is exactly zero in {zeros} of {tensors} tensors "
                f"at step {norms[-1][0]} (dead relu units, or a loss detached from the model)",
                remedy="a smaller learning rate, He initialisation or leaky relu; look for "
                "detach(), no_grad() and argmax between the model and its loss",
            )
        if self._moved < _UNMOVED:
            more = self.rate.larger() if self.rate else "ten times the learning rate"
            return "learning_rate_too_low", Advice(
                cause="the weights hardly move (their norms changed by at most "
                f"{self._moved:.1e} of themselves): the learning rate is too low for gradients of "
                f"norm {norms[-1][1]:.1e}, or the optimizer holds other parameters",
                remedy=f"{more}; check that the optimizer was given this model's parameters",
            )
        return "not_learning", Advice(
            cause="gradients arrive and weights move, but the model finds nothing to learn: labels "
            "that do not belong to the inputs, an output and a loss that do not fit each other, or "
            "inputs on a wrong scale",
            remedy=_ONE_BATCH,
        )


def _chance(level: float) -> str:
    """Return a remark when a loss is that of guessing among a few classes with equal odds."""
    if level <= 0 or level > math.log(20):
        return ""
    classes = round(math.exp(level))
    if classes < 2 or abs(level - math.log(classes)) > 0.01 * level:
        return ""
    return f" (ln {classes} = {math.log(classes):.4g} is the cross-entropy of guessing)"
