"""Wait for other processes and threads."""

from __future__ import annotations

import time
from collections.abc import Callable

__all__ = ["until"]


def until(condition: Callable[[], object], what: str = "", seconds: float = 120.0) -> None:
    """Wait until a condition holds.

    Args:
        condition: Called repeatedly until it returns a true value.
        what: Description of the condition, for the error message.
        seconds: Maximum time to wait.

    Raises:
        AssertionError: The condition did not hold in time.
    """
    looked = time.monotonic()
    deadline = looked + seconds
    while not condition():
        now = time.monotonic()
        assert now < deadline, f"not met within {seconds:.0f} s: {what}"
        # Looking takes a quarter of a core at most from what is awaited.
        time.sleep(min(max(0.02, 3 * (now - looked)), 0.5))
        looked = time.monotonic()
