"""The share of a training's time that its queries may take together."""

from __future__ import annotations

import time
from collections.abc import Callable

__all__ = ["SHARE", "SharedBudget"]

SHARE = 0.05
"""Share of a training's time for evaluating its queries, except for those without a rate."""

# Seconds that may be spent in advance.
_CREDIT = 0.25


class SharedBudget:
    """An allowance that grows with the time of a training, up to a credit with which it starts.

    Args:
        clock: time of the training in seconds.
        computing: computing time of the thread in seconds, which other programs do not change.
    """

    def __init__(
        self,
        clock: Callable[[], float] = time.monotonic,
        computing: Callable[[], float] = time.thread_time,
    ) -> None:
        self.computing = computing
        self._clock = clock
        self._allowance = _CREDIT
        self._last: float | None = None

    @property
    def used_up(self) -> bool:
        """Whether queries have to leave out the event that begins now."""
        now = self._clock()
        if self._last is not None:
            grown = self._allowance + SHARE * max(now - self._last, 0.0)
            self._allowance = min(grown, _CREDIT)
        self._last = now
        return self._allowance < 0

    def spend(self, seconds: float) -> None:
        """Account for the evaluation of a query."""
        self._allowance -= seconds
