"""Trying again while the tracking server is away."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import TypeVar

from vinedresser.errors import TrackingAway, TrackingError

__all__ = ["delays", "persist"]

T = TypeVar("T")

_FIRST_DELAY = 0.25
_LONGEST_DELAY = 5.0


def delays() -> Iterator[float]:
    """Yield the seconds to wait before each new try: 0.25, 0.5, 1, 2, 4, then 5 for ever."""
    delay = _FIRST_DELAY
    while True:
        yield delay
        delay = min(2 * delay, _LONGEST_DELAY)


def persist(action: Callable[[], T], timeout: float) -> T:
    """Call ``action`` until it is not told that the server is away.

    Args:
        action: must be harmless when it runs again after it has failed half-way.
        timeout: seconds after which no new try is begun.

    Raises:
        TrackingError: the server refused, or was still away after ``timeout``.
    """
    deadline = time.monotonic() + timeout
    for delay in delays():
        try:
            return action()
        except TrackingAway as error:
            left = deadline - time.monotonic()
            if left <= 0:
                raise TrackingError(f"{error} (tried for {timeout:g} s)") from error
            time.sleep(min(delay, left))
    raise AssertionError("delays() never ends")
