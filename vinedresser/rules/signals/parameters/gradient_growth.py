"""Growth of the gradient norm during a run, and the ratio of update to gradient."""

from __future__ import annotations

import math

from vinedresser.rules.need import Need
from vinedresser.rules.signals.base import Signal
from vinedresser.store.reading.step import Step

_KEPT = 512


class GradientGrowth(Signal):
    """The norm of the whole gradient, relative to its first value and to the update.

    Args:
        every: train steps between two looks.

    Attributes:
        first: l2 norm at the first look; NaN before.
        last: l2 norm at the last look.
        stride: ratio of the l2 norms of update and gradient, the learning rate of plain SGD; NaN
            if one was not captured or is 0.
        strides: (step, stride) of the looks so far, thinned to 512.
    """

    def __init__(self, every: int = 20) -> None:
        self.every = every
        self.needs = (
            Need("gradients", every=every, reductions=("l2",), required=False),
            Need("updates", every=every, reductions=("l2",), required=False),
        )
        self.first = math.nan
        self.last = math.nan
        self.stride = math.nan
        self.strides: list[tuple[int, float]] = []

    @property
    def growth(self) -> float:
        """The ratio of the last norm to the first; NaN before the first, or if it was 0."""
        return self.last / self.first if self.first > 0 else math.nan

    def update(self, step: Step) -> None:
        """See `Signal.update`."""
        self.stride = math.nan
        if step.rank != 0 or step.mode != "train":
            return
        parts = step.reduction_of("gradients", "l2").values()
        norm = math.hypot(*parts) if parts else math.nan
        if math.isnan(norm):
            return
        self.last = norm
        if math.isnan(self.first):
            self.first = norm
        updates = step.reduction_of("updates", "l2").values()
        if updates and 0 < self.last < math.inf:
            self.stride = math.hypot(*updates) / self.last
            self.strides.append((step.step, self.stride))
            if len(self.strides) > _KEPT:
                self.strides = self.strides[::2]
