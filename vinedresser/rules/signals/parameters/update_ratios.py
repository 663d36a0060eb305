"""How far a step of the optimizer moves the weights."""

from __future__ import annotations

import math
import statistics
from typing import TYPE_CHECKING, NamedTuple

from vinedresser.rules.need import Need
from vinedresser.rules.signals.base import Signal

if TYPE_CHECKING:
    from vinedresser.store.reading.step import Step

__all__ = ["USUAL_RATIOS", "GreatestUpdate", "UpdateRatios", "to_usual"]

# Least and greatest that healthy trainings showed.
USUAL_RATIOS = (2e-4, 2e-3)
# What is usual (Karpathy, "A Recipe for Training Neural Networks": about 1e-3).
_USUAL = 1e-3
# The factor by which a correction changes the learning rate at the most.
_MOST = 1e3


class GreatestUpdate(NamedTuple):
    """The look with the greatest updates.

    Attributes:
        step: of it.
        median: of the ratios.
        ratios: by name of a weight.
    """

    step: int
    median: float
    ratios: dict[str, float]


def to_usual(ratio: float) -> float:
    """Return the factor of the learning rate that makes a ratio a usual one.

    A power of ten, more is not known, from 0.001 to 1000.
    """
    change = min(max(_USUAL / ratio, 1 / _MOST), _MOST)
    return 10.0 ** round(math.log10(change))


class UpdateRatios(Signal):
    """The update-to-weight ratios of the last look: |update of W| / max(|W|, |W at first|).

    Norms are l2. Weights that were regularised away are held against what they were. Tensors that
    do not change are left out. Source: A. Karpathy, "A Recipe for Training Neural Networks": about
    1e-3 is usual.

    Args:
        every: train steps from one look to the next.

    Attributes:
        ratios: by name of a weight, at the last step; {} where nothing was captured or moved.
        median: of these; NaN where there are none.
        greatest: the look with the greatest median until now; None before the first.
    """

    def __init__(self, every: int = 20) -> None:
        self.every = every
        self.needs = (
            Need("updates", every=every, reductions=("l2",), required=False),
            Need("weights", every=every, reductions=("l2",), required=False),
        )
        self.ratios: dict[str, float] = {}
        self.median = math.nan
        self.greatest: GreatestUpdate | None = None
        self._first: dict[str, float] = {}

    @property
    def were_usual(self) -> bool:
        """Whether there was a look at which the median was not below what is usual."""
        return self.greatest is not None and self.greatest.median >= USUAL_RATIOS[0]

    def update(self, step: Step) -> None:
        """See `Signal.update`."""
        self.ratios, self.median = {}, math.nan
        if step.rank != 0 or step.mode != "train":
            return
        updates = step.reduction_of("updates", "l2")
        for name, now in step.reduction_of("weights", "l2").items():
            norm = max(now, self._first.setdefault(name, now))
            update = updates.get(f"updates/{name.partition('/')[2]}", 0.0)
            ratio = update / norm if norm > 0 else 0.0
            # It may underflow, or the norm overflow.
            if 0 < ratio < math.inf:
                self.ratios[name] = ratio
        if self.ratios:
            self.median = statistics.median(self.ratios.values())
            if self.greatest is None or self.median > self.greatest.median:
                self.greatest = GreatestUpdate(step.step, self.median, dict(self.ratios))
