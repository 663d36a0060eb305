"""How far a step of the optimizer moves the weights."""

from __future__ import annotations

import math
import statistics
from typing import TYPE_CHECKING

from vinedresser.rules.need import Need
from vinedresser.rules.signals.base import Signal

if TYPE_CHECKING:
    from vinedresser.capture.store.step import Step

__all__ = ["UpdateRatios"]


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
        greatest_median: of all looks until now; 0 before the first.
    """

    def __init__(self, every: int = 20) -> None:
        self.every = every
        self.needs = (
            Need("updates", every=every, reductions=("l2",), required=False),
            Need("weights", every=every, reductions=("l2",), required=False),
        )
        self.ratios: dict[str, float] = {}
        self.median = math.nan
        self.greatest_median = 0.0
        self._first: dict[str, float] = {}

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
            self.greatest_median = max(self.greatest_median, self.median)
