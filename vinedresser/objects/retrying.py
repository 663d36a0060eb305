"""Retrying: call something again after a pause, a bounded number of times or for a bounded time."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable, Iterator
from threading import Event
from typing import TypeVar

__all__ = ["attempts", "backoff", "retry"]

T = TypeVar("T")
E = TypeVar("E", bound=Exception)


def backoff(first: float, longest: float) -> Iterator[float]:
    """Yield pauses in seconds without end, each twice as long as the one before.

    Args:
        longest: the maximum.
    """
    pause = first
    while True:
        yield pause
        pause = min(2 * pause, longest)


def attempts(
    pauses: Iterable[float], *, timeout: float = math.inf, stop: Event | None = None
) -> Iterator[int]:
    """Yield the number of each attempt, from 1, and pause in between.

    The caller leaves the loop when an attempt succeeds.

    Args:
        pauses: seconds between the attempts; there is one more attempt than pauses.
        timeout: seconds after which no attempt begins; the last pause is shortened to fit.
        stop: ends the current pause and all further attempts.
    """
    deadline = time.monotonic() + timeout
    yield 1
    for number, pause in enumerate(pauses, start=2):
        left = deadline - time.monotonic()
        if left <= 0:
            return
        if stop is None:
            time.sleep(min(pause, left))
        elif stop.wait(min(pause, left)):
            return
        yield number


def retry(
    action: Callable[[], T],
    on: type[E] | tuple[type[E], ...],
    pauses: Iterable[float],
    *,
    timeout: float = math.inf,
    when: Callable[[E], bool] | None = None,
    on_failure: Callable[[E], object] | None = None,
) -> T:
    """Call a function until it succeeds, and return its result.

    Args:
        action: the function; calling it again after it failed half-way must be harmless.
        on: the errors after which it is called again; others are raised at once.
        pauses: see `attempts`.
        timeout: see `attempts`.
        when: selects among these errors; None: all.
        on_failure: called with the error of each failed call.

    Raises:
        Exception: the error of the last call.
    """
    failure: E | None = None
    for _ in attempts(pauses, timeout=timeout):
        try:
            return action()
        except on as error:
            if when is not None and not when(error):
                raise
            if on_failure is not None:
                on_failure(error)
            failure = error
    assert failure is not None, "each attempt returned or failed"
    raise failure
