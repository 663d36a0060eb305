"""Limits of the time and memory of one evaluation."""

from __future__ import annotations

import time
from collections.abc import Callable

from vinedresser.errors import QueryError

__all__ = ["MOST_BYTES", "MOST_SECONDS", "Budget"]

MOST_SECONDS = 0.05
MOST_BYTES = 64 << 20


class Budget:
    """Counts the time and memory of evaluating a query at one event.

    Memory is counted before it is allocated, so that nothing larger is allocated. An operation that
    runs cannot be interrupted: time is checked between operations and at the end. It is the time
    that the thread computes, since other programs may delay it.

    Args:
        clock: time of the thread in seconds.
    """

    def __init__(self, clock: Callable[[], float] = time.thread_time) -> None:
        self._clock = clock
        self._start = clock()
        self._bytes = 0

    def charge(self, octets: int) -> None:
        """Count memory that is about to be allocated.

        Raises:
            QueryError: the evaluation would exceed its memory or has exceeded its time.
        """
        self._bytes += octets
        if self._bytes > MOST_BYTES:
            raise QueryError(
                f"would allocate {self._bytes / 2**20:,.0f} MiB at once, and at most "
                f"{MOST_BYTES >> 20} MiB are allowed: ask for fewer or smaller tensors"
            )
        self.check()

    def release(self) -> None:
        """Note that what was charged has been freed."""
        self._bytes = 0

    def check(self) -> None:
        """Check the time.

        Raises:
            QueryError: the evaluation has exceeded it.
        """
        spent = self._clock() - self._start
        if spent > MOST_SECONDS:
            raise QueryError(
                f"took {spent * 1000:,.0f} ms, and at most {MOST_SECONDS * 1000:.0f} ms are "
                "allowed: ask for fewer or smaller tensors"
            )
