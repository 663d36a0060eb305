"""Trying again what failed, with growing pauses and for a bounded time."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

from vinedresser.rules.actions.base import Outcome

__all__ = ["persist"]

# Seconds before the second try; each further pause is twice as long, up to the longest.
_FIRST, _LONGEST = 0.5, 30.0


def persist(attempt: Callable[[], Outcome], patience: float, giving_up: threading.Event) -> Outcome:
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
        outcome = attempt()
        tries += 1
        if outcome.word != "failed":
            return outcome
        if time.monotonic() + pause > end or giving_up.wait(pause):
            return Outcome("failed", f"{outcome.detail} (tried {tries} times)")
        pause = min(2 * pause, _LONGEST)
