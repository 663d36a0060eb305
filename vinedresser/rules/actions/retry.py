"""Trying again what failed, with growing pauses and for a bounded time."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

from vinedresser.rules.actions.base import ActionResult

__all__ = ["retry"]

# Seconds before the second try; each further pause is twice as long, up to the longest.
_FIRST, _LONGEST = 0.5, 30.0


def retry(
    attempt: Callable[[], ActionResult], patience: float, giving_up: threading.Event
) -> ActionResult:
    """Try something until it is done or refused; return what came of the last try.

    Args:
        attempt: one try, over within a bounded time.
        patience: seconds after which no further try is begun.
        giving_up: ends a pause, and is the end of all tries.
    """
    end = time.monotonic() + patience
    pause = _FIRST
    tries = 0
    while True:
        result = attempt()
        tries += 1
        if result.word != "failed":
            return result
        if time.monotonic() + pause > end or giving_up.wait(pause):
            return ActionResult("failed", f"{result.detail} (tried {tries} times)")
        pause = min(2 * pause, _LONGEST)
