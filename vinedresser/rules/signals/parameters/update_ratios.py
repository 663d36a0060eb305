"""The ratio of updates to weights."""

from __future__ import annotations

import math
import statistics
from typing import NamedTuple

from vinedresser.rules.need import optional_statistics
from vinedresser.rules.signals.base import Signal
from vinedresser.rules.signals.parameters.weight_decay import decay_per_step
from vinedresser.store.reading.step import Step
from vinedresser.store.records import RunRecord

__all__ = ["USUAL_CHANGE", "USUAL_RATIOS", "GreatestUpdate", "UpdateRatios", "to_usual"]

# Update, as a share of its weight, at which some entries of a float32 weight do not change.
_LOST = 1e-6
# Minimum and maximum in healthy trainings.
USUAL_RATIOS = (2e-4, 2e-3)
USUAL_CHANGE = "normal: 0.0002× to 0.002×"
# A. Karpathy, "A Recipe for Training Neural Networks": about 1e-3.
_USUAL = 1e-3
# Maximum factor of a correction of the learning rate.
_MOST = 1e3
# Multiple of a ratio that the first steps may reach, and the last of these: at steps 5 and 10,
# healthy trainings have reached 0.18 and 0.13.
_FIRST, _LAST_FIRST = 2.0, 10
# Minimum number of checks after the first one that show how long steps usually are.
_CHECKS = 10


class GreatestUpdate(NamedTuple):
    """The check with the largest updates.

    Attributes:
        median: median of the ratios.
        ratios: ratios by name of the weight.
        decay: share of the weights that weight decay removes in a step.
    """

    step: int
    median: float
    ratios: dict[str, float]
    decay: float = 0.0

    def longer_than(self, ratio: float) -> bool:
        """Return whether the gradient's part of the steps was longer than a ratio.

        The first steps may be twice as long: they are long relative to small initial weights.
        """
        early = self.step <= _LAST_FIRST
        return self.median - self.decay > (_FIRST * ratio if early else ratio)

    @property
    def in_words(self) -> str:
        """A description with numbers."""
        of = f"median of {len(self.ratios)} tensors; " if len(self.ratios) > 1 else ""
        return (
            f"the update of step {self.step} was {self.median:.1e}× the size of the weights "
            f"({of}{USUAL_CHANGE})"
        )


def to_usual(ratio: float) -> float:
    """Return the factor of the learning rate that leads to a usual ratio.

    It is a power of ten from 0.001 to 1000, and 1000 for a ratio of 0.
    """
    if ratio == 0:
        return _MOST
    change = min(max(_USUAL / ratio, 1 / _MOST), _MOST)
    return 10.0 ** round(math.log10(change))


class UpdateRatios(Signal):
    """The update-to-weight ratios of the last check: |update of W| / max(|W|, |W at first|).

    Norms are l2. The first norm is used for weights that regularisation has shrunk. Tensors that do
    not change are ignored. Source: A. Karpathy, "A Recipe for Training Neural Networks": about 1e-3
    is usual.

    Args:
        every: train steps between two checks.

    Attributes:
        ratios: ratios at the last step by name of the weight; {} without captures or changes.
        greatest: check with the largest median so far; None before the first.
        decay: share of the weights that weight decay removes in a step; 0 if there is none.
        lost: whether at the last step no weight changed, but biases did, and by so little that the
            updates of the weights were lost to rounding.
    """

    def __init__(self, every: int = 20) -> None:
        self.every = every
        self.needs = optional_statistics(every, updates=("l2",), weights=("l2",))
        self.ratios: dict[str, float] = {}
        self.greatest: GreatestUpdate | None = None
        self.decay = 0.0
        self.lost = False
        self._first: dict[str, float] = {}
        # Medians less the decay, from the second check on.
        self._later: list[float] = []

    def begin(self, info: RunRecord) -> None:
        """Read the weight decay of the optimizers."""
        self.decay = decay_per_step(info)

    @property
    def were_usual(self) -> bool:
        """Whether the median reached the usual minimum at some check."""
        return self.greatest is not None and self.greatest.median >= USUAL_RATIOS[0]

    @property
    def lasting(self) -> float:
        """Median of the medians, less the decay and without the first; 0 after a few checks."""
        return statistics.median(self._later) if len(self._later) >= _CHECKS else 0.0

    def update(self, step: Step) -> None:
        """See `Signal.update`."""
        self.ratios, self.lost = {}, False
        if step.rank != 0 or step.mode != "train":
            return
        updates = step.reduction_of("updates", "l2")
        norms = step.reduction_of("weights", "l2")
        for name, now in norms.items():
            norm = max(now, self._first.setdefault(name, now))
            update = updates.get(f"updates/{name.partition('/')[2]}", 0.0)
            ratio = update / norm if norm > 0 else 0.0
            # The ratio may underflow, or the norm overflow.
            if 0 < ratio < math.inf:
                self.ratios[name] = ratio
        greatest = max(updates.values(), default=0.0)
        self.lost = not self.ratios and 0 < greatest < _LOST * min(norms.values(), default=0.0)
        if self.ratios:
            median = statistics.median(self.ratios.values())
            if self.greatest is not None:
                self._later.append(median - self.decay)
            if self.greatest is None or median > self.greatest.median:
                self.greatest = GreatestUpdate(step.step, median, self.ratios, self.decay)
