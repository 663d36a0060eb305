"""The norm of all gradients together, along the steps."""

from __future__ import annotations

import math
from collections import deque
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from vinedresser.store.reading.step import Step

__all__ = ["GradientNorms"]


class GradientNorms:
    """The last norms of one rank's gradient, from the l2 norms of its tensors.

    Attributes:
        norms: (step, norm) at the last steps at which gradients were captured, oldest first; a norm
            is infinite when its square does not fit, which finite gradients can bring about.
        tensors: how many tensors the last of them was made of.
        zeros: how many of these had a norm of exactly zero.
    """

    def __init__(self) -> None:
        self.tensors = 0
        self.zeros = 0
        self.norms: deque[tuple[int, float]] = deque(maxlen=32)

    def add(self, step: Step) -> None:
        """Take in a train step; nothing happens when no gradient was captured, or a NaN."""
        parts = list(step.reduction_of("gradients", "l2").values())
        norm = math.hypot(*parts) if parts else math.nan
        if not math.isnan(norm):
            self.norms.append((step.step, norm))
            self.tensors = len(parts)
            self.zeros = parts.count(0.0)

    def growth(self) -> float:
        """Return the last norm over the median of those before; 1 when there are too few."""
        if len(self.norms) < 2:
            return 1.0
        *before, last = (norm for _, norm in self.norms)
        usual = sorted(before)[len(before) // 2]
        if usual == 0 or math.isinf(usual):
            return 1.0
        return last / usual
