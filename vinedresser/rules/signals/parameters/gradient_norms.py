"""The norm of all gradients together, by step."""

from __future__ import annotations

import math
from collections import deque

from vinedresser.store.reading.step import Step


class GradientNorms:
    """Recent gradient norms of one rank, from the l2 norms of its tensors.

    Attributes:
        norms: (step, norm) of the last 32 captured gradients, oldest first; a norm is infinite if
            its square overflows, which is possible for finite gradients.
        tensors: number of tensors of the last gradient.
        zeros: number of these tensors with a norm of exactly zero.
    """

    def __init__(self) -> None:
        self.tensors = 0
        self.zeros = 0
        self.norms: deque[tuple[int, float]] = deque(maxlen=32)

    def add(self, step: Step) -> None:
        """Process a train step; ignore it if no gradient was captured or its norm is NaN."""
        parts = list(step.reduction_of("gradients", "l2").values())
        norm = math.hypot(*parts) if parts else math.nan
        if not math.isnan(norm):
            self.norms.append((step.step, norm))
            self.tensors = len(parts)
            self.zeros = parts.count(0.0)

    def growth(self) -> float:
        """Return the ratio of the last norm to the previous median; 1 if there are too few."""
        if len(self.norms) < 2:
            return 1.0
        *before, last = (norm for _, norm in self.norms)
        usual = sorted(before)[len(before) // 2]
        if usual == 0 or math.isinf(usual):
            return 1.0
        return last / usual
