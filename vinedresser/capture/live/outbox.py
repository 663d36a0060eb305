"""Answers on their way from the training's thread to one client."""

from __future__ import annotations

from collections import deque
from contextlib import suppress
from dataclasses import replace

from vinedresser.queries.answer import Answer

__all__ = ["Outbox"]

# Answers for a client that does not read, or for the time until they are sent.
_MOST = 4096


class Outbox:
    """A bounded queue of answers; the oldest are dropped and counted.

    `put` is called on the training's thread and `take` on another one, without a lock.

    Args:
        most: maximum number of answers.
    """

    def __init__(self, most: int = _MOST) -> None:
        self._answers: deque[Answer] = deque()
        self._most = most
        # Windows and events that the dropped answers stand for; and those told so far.
        self._missed = self._told = (0, 0)

    def put(self, answer: Answer) -> None:
        """Add an answer; never waits."""
        if len(self._answers) >= self._most:
            # The other thread may be faster.
            with suppress(IndexError):
                oldest, (dropped, thinned) = self._answers.popleft(), self._missed
                self._missed = dropped + 1 + oldest.dropped, thinned + oldest.thinned
        self._answers.append(answer)

    def take(self) -> list[Answer]:
        """Return the answers so far; the first one counts those that were dropped before it."""
        taken: list[Answer] = []
        while self._answers:
            taken.append(self._answers.popleft())
        missed, told = self._missed, self._told
        if taken and missed != told:
            first, self._told = taken[0], missed
            dropped, thinned = missed[0] - told[0], missed[1] - told[1]
            taken[0] = replace(
                first, dropped=first.dropped + dropped, thinned=first.thinned + thinned
            )
        return taken
