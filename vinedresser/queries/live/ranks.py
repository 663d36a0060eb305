"""Asking several ranks of a running training at once."""

from __future__ import annotations

import queue
import threading
from collections.abc import Iterator, Sequence

from vinedresser.errors import VinedresserError
from vinedresser.queries.answer import Answer
from vinedresser.queries.live.client import ask_with_pauses
from vinedresser.queries.query import Query

__all__ = ["RankAnswers"]

# Answers that wait for a slow reader.
_MOST_WAITING = 1000


class RankAnswers:
    """The answers of several ranks as they come, each read by a thread.

    Args:
        ranks: ranks to ask.
        rate: maximum number of windows per second and rank; None: no limit.
    """

    def __init__(
        self, location: str, query: Query, ranks: Sequence[int], rate: float | None
    ) -> None:
        self._location = location
        self._query = query
        self._ranks = ranks
        self._rate = rate
        # None: the stream of a rank has ended.
        self._found: queue.Queue[Answer | VinedresserError | None] = queue.Queue(_MOST_WAITING)
        self._ended = threading.Event()

    def __iter__(self) -> Iterator[Answer]:
        """Yield the answers until all ranks end.

        Raises:
            AgentAway: one of them does not listen.
        """
        for rank in self._ranks:
            threading.Thread(target=self._read, args=(rank,), daemon=True).start()
        running = len(self._ranks)
        try:
            while running:
                one = self._found.get()
                if isinstance(one, VinedresserError):
                    raise one
                if one is None:
                    running -= 1
                else:
                    yield one
        finally:
            self._ended.set()

    def _read(self, rank: int) -> None:
        try:
            for answer in ask_with_pauses(self._location, self._query, rank=rank, rate=self._rate):
                if answer is not None:
                    self._pass_on(answer)
                if self._ended.is_set():
                    return
        except VinedresserError as error:
            self._pass_on(error)
        else:
            self._pass_on(None)

    def _pass_on(self, one: Answer | VinedresserError | None) -> None:
        while not self._ended.is_set():
            try:
                self._found.put(one, timeout=0.2)
            except queue.Full:
                continue
            return
