"""Retrying while the tracking server is unavailable."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TypeVar

from vinedresser.errors import TrackingAway, TrackingError
from vinedresser.objects.retrying import backoff, retry

__all__ = ["persist", "tracking_pauses"]

T = TypeVar("T")


def tracking_pauses() -> Iterator[float]:
    """Yield the seconds to wait before each retry: 0.25, 0.5, 1, 2, 4, then 5 without end."""
    return backoff(0.25, 5.0)


def persist(action: Callable[[], T], timeout: float = 60.0) -> T:
    """Call a function until the server is available, and return its result.

    Args:
        action: the function; calling it again after it failed half-way must be harmless.
        timeout: seconds after which no call begins.

    Raises:
        TrackingError: the server refused, or was still unavailable after ``timeout``.
    """
    try:
        return retry(action, TrackingAway, tracking_pauses(), timeout=timeout)
    except TrackingAway as error:
        raise TrackingError(f"{error} (tried for {timeout:g} s)") from error
