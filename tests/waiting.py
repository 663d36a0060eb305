"""Waiting for what other processes and threads do."""

from __future__ import annotations

import time
from collections.abc import Callable

__all__ = ["until"]


def until(condition: Callable[[], object], what: str = "", seconds: float = 120.0) -> None:
    """Wait until a condition is met, which is asked again and again.

    Args:
        condition: met when what it returns is true.
        what: is waited for, for the message.
        seconds: at the most.

    Raises:
        AssertionError: it is not met in time.
    """
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, f"waited {seconds:.0f} s in vain for: {what}"
        time.sleep(0.02)
