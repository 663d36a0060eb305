"""Limits of the time and memory of one evaluation."""

from __future__ import annotations

import gc
import time
from collections.abc import Callable
from typing import NamedTuple

from vinedresser.errors import QueryError

__all__ = ["OF_A_STORE", "OF_A_TRAINING", "Budget", "Limits"]


class Limits(NamedTuple):
    """What one evaluation may cost.

    Attributes:
        seconds: computing time.
        octets: memory that is allocated at once, in bytes.
        first: computing time of the first evaluation, in which libraries load what they need.
    """

    seconds: float
    octets: int
    first: float


# In a training, which waits for the evaluation; and of a stored run, for which nobody waits.
OF_A_TRAINING = Limits(0.05, 64 << 20, 0.5)
OF_A_STORE = Limits(10.0, 1 << 30, 10.0)


class Budget:
    """Counts the time and memory of evaluating a query at one event.

    Memory is counted before it is allocated, so that nothing larger is allocated. An operation that
    runs cannot be interrupted: time is checked between operations and at the end. It is the time
    that the thread computes, since other programs may delay it, and without full collections of
    garbage, which take as long as the program has objects.

    Args:
        first: it is the first evaluation.
        clock: time of the thread in seconds.
    """

    def __init__(
        self,
        limits: Limits = OF_A_TRAINING,
        *,
        first: bool = False,
        clock: Callable[[], float] = time.thread_time,
    ) -> None:
        self._limits = limits
        self._seconds = limits.first if first else limits.seconds
        self._clock = clock
        self._start = clock()
        self._spent = 0.0
        self._collections = _full_collections()
        self._bytes = 0

    def charge(self, octets: int) -> None:
        """Count memory that is about to be allocated.

        Raises:
            QueryError: the evaluation would exceed its memory or has exceeded its time.
        """
        self._bytes += octets
        if self._bytes > self._limits.octets:
            raise QueryError(
                f"would allocate {self._bytes / 2**20:,.0f} MiB at once, and at most "
                f"{self._limits.octets >> 20} MiB are allowed: ask for fewer or smaller tensors"
            )
        self.check()

    @property
    def held(self) -> int:
        """Bytes that have been charged and not been released."""
        return self._bytes

    def release(self, held: int) -> None:
        """Note that what was charged since `held` had this value has been freed."""
        self._bytes = held

    def pause(self) -> None:
        """Check the time, and do not count it until `resume`.

        Raises:
            QueryError: the evaluation has exceeded it.
        """
        self._spent = self.check()

    def resume(self) -> None:
        """Count the time again."""
        self._start = self._clock() - self._spent

    def check(self) -> float:
        """Check the time; return the seconds so far.

        Raises:
            QueryError: the evaluation has exceeded it.
        """
        spent = self._clock() - self._start
        if spent <= self._seconds:
            return spent
        collections = _full_collections()
        if collections > self._collections:
            self._collections, self._start = collections, self._clock()
            return 0.0
        raise QueryError(
            f"took {spent * 1000:,.0f} ms, and at most {self._seconds * 1000:,.0f} ms are allowed: "
            "ask for fewer or smaller tensors"
        )


def _full_collections() -> int:
    """Return the number of full collections of garbage so far."""
    found: int = gc.get_stats()[-1]["collections"]
    return found
