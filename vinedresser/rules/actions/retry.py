"""Retrying a failed action, with growing pauses and for a bounded time."""

from __future__ import annotations

import threading
from collections.abc import Callable

from vinedresser.retrying import attempts, backoff
from vinedresser.rules.actions.base import ActionResult

# Seconds before the second try; each later pause is twice as long, up to the longest.
_FIRST, _LONGEST = 0.5, 30.0


def retry(
    attempt: Callable[[], ActionResult], patience: float, giving_up: threading.Event
) -> ActionResult:
    """Attempt an action until it is done or refused; return the last result.

    Args:
        attempt: one attempt, of bounded duration.
        patience: seconds after which no attempt begins.
        giving_up: ends a pause and all attempts.
    """
    result, tries = ActionResult("failed", ""), 0
    for number in attempts(backoff(_FIRST, _LONGEST), timeout=patience, stop=giving_up):
        result = attempt()
        if result.word != "failed":
            return result
        tries = number
    return ActionResult("failed", f"{result.detail} (tried {tries} times)")
