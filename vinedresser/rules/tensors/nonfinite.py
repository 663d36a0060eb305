"""Rule: NaN or infinite losses, gradients or weights."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from vinedresser.rules.advice import Advice
from vinedresser.rules.applicability import Reasons
from vinedresser.rules.base import Rule
from vinedresser.rules.faults import Fault
from vinedresser.rules.need import Need, optional_statistics
from vinedresser.rules.signals.losses.compared import ROWS
from vinedresser.rules.signals.parameters.learning_rate import LearningRate, cut
from vinedresser.rules.signals.recent_past import Growth, RecentPast
from vinedresser.store.finding import Finding
from vinedresser.store.reading.step import Step
from vinedresser.store.records import RunRecord

_ENDLESS = Advice(
    cause="the loss has no minimum: it fell far below zero, until it overflowed; it or one of its "
    "terms has the wrong sign, or a factor that the model can learn",
    remedy="check the sign of each term of the loss; bound what the model can make large or small",
)
# What PyTorch ignores unless another label is set.
_USUAL = -100


class Nonfinite(Rule):
    """A loss, gradient or weight contains NaN or infinite values.

    Fires at the first occurrence. The rule counts entries, so it ignores large finite values and
    norms that overflow although every entry is finite. After growth of the loss, its fault is a
    learning rate that is too high, or, if the loss fell far below zero, a loss without a minimum.
    A loss that ignores all labels of its batch is the mean of nothing, which is NaN.

    Args:
        every: train steps between checks of gradients and weights; losses are checked at every
            step. Smaller values identify the first affected tensor more reliably.
    """

    fault = "nonfinite"
    stage = "inside"
    consequences = ("outcome", "dying_relu")
    position = 10
    predecessors = ("exploding_tensor",)
    inapplicable = Reasons(sklearn="scikit-learn raises an error when a number is not finite")

    def __init__(self, every: int = 20) -> None:
        self.every = every
        self.needs = (
            Need("losses", modes=("train", "eval")),
            # Optional: the losses alone are sufficient.
            *optional_statistics(every, gradients=("nonfinite", "l2"), weights=("nonfinite",)),
            # As the signals of batches need them.
            Need("labels", every=5, tensor=True, rows=ROWS, required=False),
        )
        # By loss: label that it ignores.
        self._ignored: dict[str, int] = {}
        self._fired = False
        self._ranks: dict[int, RecentPast] = {}
        self._rate: LearningRate | None = None

    def begin(self, info: RunRecord) -> None:
        """Read the learning rate and the labels that losses ignore."""
        self._rate = LearningRate.among(info.parameters)

    def on_record(self, info: RunRecord) -> None:
        """Read the labels that losses ignore."""
        for loss, setup in info.losses.items():
            label = setup.get("settings", {}).get("ignore_index")
            if isinstance(label, int):
                self._ignored[loss] = label

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
        # The loss of this step counts as growth, but not as an earlier loss.
        past.add(step)
        growth = past.growth()
        endless = growth is not None and growth.of_loss and _fell(losses)
        advice = _ENDLESS if endless else self._advice(step, bad, growth, first=first)
        return self.found(
            step,
            since=step.step if growth is None or growth.since is None else growth.since,
            tensor=bad.tensor,
            statistic="nonfinite",
            value=bad.number,
            threshold=0.0,
            confidence=1.0,
            seen=f"{bad.tensor} {bad.what} at step {step.step}; {before}",
            cause=advice.cause,
            remedy=advice.remedy,
            fault=_fault(growth, endless=endless),
            correction=self._rate.corrected(cut(growth.factor))
            if growth and self._rate and not endless
            else {},
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
            step: first step that is not finite.
            bad: tensor that is not finite.
            growth: growth before this step, if any.
            first: whether there is no earlier finite loss.
        """
        if growth:
            rate = self._rate
            lower = cut(growth.factor)
            smaller = rate.scaled(lower) if rate else "divide the learning rate by 10"
            began = "" if growth.since is None else f" since step {growth.since}"
            return Advice(
                cause="the learning rate is too high for these gradients: overflow after growth "
                f"({growth.what} rose {growth.factor:.2g}-fold{began})",
                remedy=f"{smaller}; clip the gradient norm, warm up the learning rate",
            )
        if self._ignores_all(step, bad.tensor):
            return Advice(
                cause="the loss ignores all labels of the batch (ignore_index), and the mean of no "
                "values is NaN: all labels are masked, as those of answers that were cut off, or "
                "the wrong part of them is",
                remedy="leave out batches without a label that counts, or divide the sum of the "
                "losses by at least 1; check the mask of the labels",
            )
        if first:
            return Advice(
                cause="not finite from the first step on: inputs, labels or initial weights are "
                "not finite, or the forward pass overflows immediately",
                remedy="check the first batch and the initial weights for NaN; scale the inputs; "
                "check exp, log and divisions in the model",
            )
        if bad.tensor.startswith("gradients/") and not _bad(step.scalars_of("losses")):
            return Advice(
                cause="the loss is finite but its derivative is not: sqrt, a norm or a fractional "
                "power at zero, log near zero, or 0 * inf after torch.where",
                remedy="add a small constant inside the sqrt, norm, log or division; mask the "
                "inputs of the function, not its result",
            )
        return Advice(
            cause="sudden, without previous growth: an operation outside its domain or with an "
            "infinite derivative (log(0), sqrt(0), 0/0, exp of a large number), or a batch that "
            "contains NaN",
            remedy="add a small constant inside log, sqrt and divisions, use a loss on logits or "
            f"log_softmax; check the batches up to step {step.step} for NaN",
        )

    def _ignores_all(self, step: Step, loss: str) -> bool:
        """Return whether a loss ignores all of its labels that were captured at a step."""
        name = loss.removeprefix("losses/")
        if name == loss or f"labels/{name}" not in step.tensor_names:
            return False
        labels = step.tensor(f"labels/{name}")
        ignored = self._ignored.get(name, _USUAL)
        return bool(labels.size) and labels.dtype.kind in "iu" and bool((labels == ignored).all())


def _fell(losses: Mapping[str, Sequence[float]]) -> bool:
    """Return whether the losses that were finite fell far below zero: they have no minimum."""
    last = [values[-1] for values in losses.values() if values]
    return bool(last) and min(last) < 0 and -min(last) >= max(map(abs, last))


def _fault(growth: Growth | None, *, endless: bool) -> Fault | None:
    """Return the fault of a growth; None without one."""
    if growth is None or not growth.of_loss:
        return None
    return "unbounded_loss" if endless else "learning_rate_too_high"


class _Bad(NamedTuple):
    """A tensor that is not finite.

    Attributes:
        tensor: name of the tensor.
        number: number of entries that are not finite.
        what: description, such as "is nan".
    """

    tensor: str
    number: float
    what: str


def _bad(scalars: dict[str, float]) -> list[str]:
    """Return the names of the values that are not finite."""
    return [name for name, value in scalars.items() if not math.isfinite(value)]


def _counts(step: Step, collection: str) -> dict[str, float]:
    """Return the number of non-finite entries of each affected tensor, in model order."""
    counts = step.reduction_of(collection, "nonfinite")
    return {name: count for name, count in counts.items() if count}


def _bad_names(step: Step) -> list[str]:
    """Return the names of all non-finite values of a step, causes first."""
    gradients = reversed(_counts(step, "gradients"))
    return [*_counts(step, "weights"), *_bad(step.scalars_of("losses")), *gradients]


def _first_bad(step: Step) -> _Bad | None:
    """Return the first non-finite tensor: weights affect the loss, and the loss the gradients.

    Gradients flow from the last layer to the first, so the last affected gradient is named.
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
