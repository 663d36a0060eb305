"""Losses that jump from one train step to the next."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Iterable
from statistics import median
from typing import NamedTuple

__all__ = ["LossJump", "LossJumps"]

# Train steps before a jump, and how many of them a loss needs before it can jump.
_WINDOW, _LEAST = 50, 20
# A jump leaves the median of these steps by more than this multiple of their whole range, and than
# this share of the median itself: where a loss hardly varies, a small step is a multiple of it.
_RANGES, _SHARE = 8.0, 0.5


class LossJump(NamedTuple):
    """A loss that is far above those of the steps before.

    Attributes:
        name: full name of the loss.
        least, most: the smallest and the largest value in the steps before.
        steps: number of these steps.
        limit: the value from which on it is a jump.
    """

    name: str
    value: float
    least: float
    most: float
    steps: int
    limit: float

    def seen(self, step: int) -> str:
        """Return in words what was seen at a step."""
        return (
            f"{self.name} jumped at step {step}: it is {self.value:.4g}, after "
            f"{self.least:.4g} to {self.most:.4g} in the {self.steps} steps before"
        )


class LossJumps:
    """Compares the losses of each step with those of the steps before."""

    def __init__(self) -> None:
        self._before: dict[str, deque[float]] = {}

    def next(self, losses: Iterable[tuple[str, float]]) -> LossJump | None:
        """Take the losses of the next step, by name; return the first that jumps, or None.

        Of several values with one name, such as those of an accumulation, the mean counts.
        """
        values: dict[str, list[float]] = {}
        for name, value in losses:
            values.setdefault(name, []).append(value)
        found = [self._compare(name, sum(each) / len(each)) for name, each in values.items()]
        return next((one for one in found if one is not None), None)

    def _compare(self, name: str, value: float) -> LossJump | None:
        if not math.isfinite(value):
            return None
        before = self._before.setdefault(name, deque(maxlen=_WINDOW))
        jump = None
        if len(before) >= _LEAST and value > (most := max(before)):
            least = min(before)
            middle = median(before)
            limit = middle + max(_RANGES * (most - least), _SHARE * abs(middle))
            # Losses that are always the same have no range to compare with.
            if value > limit and most > least:
                jump = LossJump(name, value, least, most, len(before), limit)
        before.append(value)
        return jump
