"""Why a training loss does not come down, as far as losses, gradients and weights tell."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, NamedTuple

from vinedresser.rules.advice import Advice
from vinedresser.rules.faults import Fault
from vinedresser.rules.signals.outcomes.no_progress import LossTrajectory
from vinedresser.rules.signals.parameters.gradient_norms import GradientNorms
from vinedresser.rules.signals.parameters.learning_rate import LearningRate, LearningRateSignal

if TYPE_CHECKING:
    from vinedresser.store.reading.step import Step

__all__ = ["Diagnosis", "LossDiagnosis", "too_long_steps"]

# Norms of the weights that change by less than this share did not train.
_UNMOVED = 1e-3
# Boosting that can remove no more than this of the error was not meant to.
_REACH = 0.5
# A rise of this factor asks for a bigger cut of the learning rate.
_FAR = 1e3
_ONE_BATCH = (
    "train on one batch until its loss is near zero: if that fails look at model, loss and "
    "learning rate, if not at the data"
)


class Diagnosis(NamedTuple):
    """The likely cause, what to try, and the kind of fault.

    Attributes:
        advice: the likely cause, and what to try.
        fault: the kind of fault that it is a sign of.
        correction: the remedy as settings, where the learning rate is known (`Finding`).
    """

    advice: Advice
    fault: Fault
    correction: dict[str, float]


class LossDiagnosis:
    """Keeps what is needed to explain a loss that does not come down.

    Attributes:
        rate: the learning rate, where the run's hyperparameters have one.
        moved: by which share the norm of a weight has changed at the most; NaN where not captured.
        shrinkage: what each boosted tree counts; None where none are boosted.
    """

    def __init__(self) -> None:
        self.rate: LearningRate | None = None
        self.moved = math.nan
        self.shrinkage: float | None = None
        self._rounds = 0
        self._gradients = GradientNorms()
        self._weights: dict[str, float] = {}

    def add(self, step: Step) -> None:
        """Take in a train step."""
        if step.mode != "train":
            return
        self._rounds = step.step + 1
        self._gradients.add(step)
        norms = step.reduction_of("weights", "l2")
        changes = [
            abs(norm - before) / before
            for name, norm in norms.items()
            if (before := self._weights.setdefault(name, norm)) > 0
        ]
        if changes:
            self.moved = max(changes)

    def explain(self, trajectory: LossTrajectory, rate: LearningRateSignal) -> Diagnosis:
        """Return the diagnosis of a loss that does not come down.

        Args:
            trajectory: of the loss.
            rate: the learning rate.
        """
        if trajectory.kind != "standing":
            advice, correction = too_long_steps(trajectory, rate)
            return Diagnosis(advice, "learning_rate_too_high", correction)
        self.rate = rate.rate()
        fault, advice = self.standing()
        low = fault == "learning_rate_too_low"
        return Diagnosis(advice, fault, rate.corrected(10.0) if low else {})

    def _reach(self, shrinkage: float) -> float:
        """Return the share of a squared error that is removed where every tree is perfect.

        Of what is left, each takes its shrinkage (Friedman, Ann. Stat. 29, 2001, section 5).
        """
        return 1 - (1 - min(shrinkage, 1.0)) ** (2 * self._rounds)

    @property
    def trains(self) -> bool:
        """Whether gradients arrive and weights move, as far as that was captured."""
        gradients = self._gradients
        arrive = not gradients.norms or 2 * gradients.zeros < gradients.tensors
        return arrive and not self.moved < _UNMOVED

    def standing(self) -> tuple[Fault, Advice]:
        """Return the fault, its cause and remedy, of a loss that hardly moves."""
        norms, zeros, tensors = (
            self._gradients.norms,
            self._gradients.zeros,
            self._gradients.tensors,
        )
        if self.shrinkage is not None and self._reach(self.shrinkage) < _REACH:
            return "learning_rate_too_low", Advice(
                cause=f"{self._rounds} trees of which each counts {self.shrinkage:g} remove "
                f"{self._reach(self.shrinkage):.1%} of the error at the most",
                remedy=f"a learning rate (eta) of {3 / self._rounds:.1g}, or more rounds",
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
        if self.moved < _UNMOVED:
            more = self.rate.larger() if self.rate else "ten times the learning rate"
            return "learning_rate_too_low", Advice(
                cause="the weights hardly move (their norms changed by at most "
                f"{self.moved:.1e} of themselves): the learning rate is too low for gradients of "
                f"norm {norms[-1][1]:.1e}, or the optimizer holds other parameters",
                remedy=f"{more}; check that the optimizer was given this model's parameters",
            )
        return "not_learning", Advice(
            cause="gradients arrive and weights move, but the model finds nothing to learn: labels "
            "that do not belong to the inputs, an output and a loss that do not fit each other, or "
            "inputs on a wrong scale",
            remedy=_ONE_BATCH,
        )


def too_long_steps(
    trajectory: LossTrajectory, rate: LearningRateSignal
) -> tuple[Advice, dict[str, float]]:
    """Return what is said of a loss that was thrown up, or that was lost again.

    Args:
        trajectory: of the loss.
        rate: the learning rate.

    Returns:
        Cause and remedy, and the remedy as a `Finding.correction`.
    """
    factor = 0.01 if trajectory.rise >= _FAR else 0.1
    smaller = rate.scaled(factor)
    if trajectory.kind == "thrown_up":
        advice = Advice(
            cause=f"the learning rate is too high: the loss rose {trajectory.rise:.2g}-fold",
            remedy=f"{smaller}; warm it up, clip the gradient norm",
        )
    else:
        advice = Advice(
            cause="it had learned and lost it again: the learning rate is too high for this "
            "stage, or the data changed",
            remedy=f"{smaller}; a decaying learning rate; clip the gradient norm",
        )
    return advice, rate.corrected(factor)
