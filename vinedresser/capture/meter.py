"""Measuring the time that a hook takes of a training."""

from __future__ import annotations

import time
from collections.abc import Callable


class Meter:
    """A stopwatch for the callbacks of a training, which the `Shield` runs.

    It measures the CPU time of a thread, which other load on the machine does not change.

    Args:
        clock: returns the time, in seconds.

    Attributes:
        on: whether callbacks are measured.
        running: a callback is being measured; those that it calls are part of it.
        spent: measured time since the last `take`, in seconds.
    """

    __slots__ = ("clock", "on", "running", "spent")

    def __init__(self, clock: Callable[[], float] = time.thread_time) -> None:
        self.clock = clock
        self.on = self.running = False
        self.spent = 0.0

    def take(self) -> float:
        """Return the measured time in seconds, and forget it."""
        spent, self.spent = self.spent, 0.0
        return spent
