"""Rule: NaN or infinite losses, gradients, weights."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, NamedTuple

from vinedresser.rules.advice import Advice
from vinedresser.rules.base import Rule
from vinedresser.rules.need import Need
from vinedresser.rules.signals.parameters.learning_rate import LearningRate
from vinedresser.rules.signals.recent_past import Growth, RecentPast
from vinedresser.store.finding import Finding

if TYPE_CHECKING:
    from vinedresser.store.reading.step import Step
    from vinedresser.store.records import RunRecord

__all__ = ["Nonfinite"]


class Nonfinite(Rule):
    """A loss, gradient or weight holds NaN or infinite values.

    Fires at the first one seen. Values that are large but finite are not its business, nor is a
    norm that overflows while every entry is finite: it counts entries.

    Args:
        every: train steps from one look at gradients and weights to the next; losses are looked at
            in every step. The smaller, the surer the tensor that is named was the first.
    """

    fault = "nonfinite"

    def __init__(self, every: int = 20) -> None:
        self.every = every
        self.needs = (
            Need("losses", modes=("train", "eval")),
            # Where there are none, the losses are enough.
            Need("gradients", every=every, reductions=("nonfinite", "l2"), required=False),
            Need("weights", every=every, reductions=("nonfinite",), required=False),
        )
        self._fired = False
        self._ranks: dict[int, RecentPast] = {}
        self._rate: LearningRate | None = None

    def begin(self, info: RunRecord) -> None:
        """Take note of the learning rate."""
        self._rate = LearningRate.among(info.parameters)

    def update(self, step: Step) -> Finding | None:
        """See `Rule.update`."""
        if self._fired:
            return None
        past = self._ranks.setdefault(step.rank, RecentPast())
        bad = _first_bad(step)
        if bad is None:
            past.add(step)
            return None
        self._fired = True
        return self._finding(step, bad, past)

    def _finding(self, step: Step, bad: _Bad, past: RecentPast) -> Finding:
        losses = past.losses(step.mode)
        before = past.in_words(step.mode)
        norms = [list(pair) for pair in past.gradients.norms][-5:]
        first = not past.losses("train") and not past.losses("eval")
        # The loss of this very step counts as grown, but not as seen before.
        past.add(step)
        growth = past.growth()
        advice = self._advice(step, bad, growth, first=first)
        return self.found(
            step,
            since=step.step,
            tensor=bad.tensor,
            statistic="nonfinite",
            value=bad.number,
            threshold=0.0,
            confidence=1.0,
            seen=f"{bad.tensor} {bad.what} at step {step.step}; {before}",
            cause=advice.cause,
            remedy=advice.remedy,
            correction=self._rate.lowered(growth.factor) if growth and self._rate else {},
            evidence={
                "all": _bad_names(step)[:20],
                "growth": growth.factor if growth else 1.0,
                "losses_before": {name: values[-5:] for name, values in losses.items()},
                "gradient_norms_before": norms,
            },
        )

    def _advice(self, step: Step, bad: _Bad, growth: Growth | None, *, first: bool) -> Advice:
        """Return the likely cause and the remedy.

        Args:
            step: the first that is not finite.
            bad: what is not finite.
            growth: what grew before.
            first: no finite loss was seen before.
        """
        if growth:
            rate = self._rate
            smaller = rate.smaller(growth.factor) if rate else "a tenth of the learning rate"
            return Advice(
                cause=f"overflow after growth ({growth.what} rose {growth.factor:.2g}-fold): the "
                "learning rate is too high, or the gradient explodes",
                remedy=f"{smaller}; clip the gradient norm, warm the learning rate up",
            )
        if first:
            return Advice(
                cause="it was so from the first step on: inputs, labels or initial weights that "
                "are not finite, or a forward pass that overflows at once",
                remedy="check the first batch and the initial weights for NaN; scale the inputs; "
                "look for exp, log and divisions in the model",
            )
        if bad.tensor.startswith("gradients/") and not _bad(step.scalars_of("losses")):
            return Advice(
                cause="the loss is finite but its derivative is not: sqrt, a norm or a fractional "
                "power at zero, a log near zero, or 0 * inf behind a torch.where",
                remedy="add a small constant inside the sqrt, norm, log or division; mask the "
                "inputs of the function, not its result",
            )
        return Advice(
            cause="sudden, without growth before: an operation outside its domain or with an "
            "infinite derivative there (log(0), sqrt(0), 0/0, exp of a large number), or a batch "
            "that holds NaN",
            remedy="add a small constant inside log, sqrt and divisions, use a loss on logits or "
            f"log_softmax; check the batches up to step {step.step} for NaN",
        )


class _Bad(NamedTuple):
    """A tensor that is not finite.

    Attributes:
        tensor: its name.
        number: of entries that are not finite.
        what: in words, such as "is nan".
    """

    tensor: str
    number: float
    what: str


def _bad(scalars: dict[str, float]) -> list[str]:
    """Return the names of the values that are not finite."""
    return [name for name, value in scalars.items() if not math.isfinite(value)]


def _counts(step: Step, collection: str) -> dict[str, float]:
    """Return how many entries are not finite, for the tensors that have any, in model order."""
    counts = step.reduction_of(collection, "nonfinite")
    return {name: count for name, count in counts.items() if count}


def _bad_names(step: Step) -> list[str]:
    """Return everything in a step that is not finite, in the order of cause and effect."""
    gradients = reversed(_counts(step, "gradients"))
    return [*_counts(step, "weights"), *_bad(step.scalars_of("losses")), *gradients]


def _first_bad(step: Step) -> _Bad | None:
    """Return what was not finite first: weights make the loss, the loss makes the gradients.

    Gradients flow from the last layer to the first, so the last one with such entries is named.
    """
    names = _bad_names(step)
    if not names:
        return None
    name = names[0]
    if name.startswith("losses/"):
        value = step.scalars[name]
        return _Bad(name, 1.0, f"is {value:g}")
    kind = name.partition("/")[0]
    count = _counts(step, kind)[name]
    entries = "1 entry that is" if count == 1 else f"{count:.0f} entries that are"
    return _Bad(name, count, f"has {entries} not finite")
