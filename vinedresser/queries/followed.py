"""The answers so far to a query, for a display that looks at them now and then."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import closing

from vinedresser.errors import ConfigError, VinedresserError
from vinedresser.queries.answer import Answer
from vinedresser.queries.live.asking import is_asked_live
from vinedresser.queries.live.client import ask_with_pauses
from vinedresser.queries.query import Query
from vinedresser.queries.ranks import check_rank
from vinedresser.queries.standing import DEFAULT_RATE
from vinedresser.queries.stored.answering import StoredRank, check_stored
from vinedresser.queries.stored.silence import explain_silence
from vinedresser.store.reading.reader import Run

# Seconds without a look after which a training is no longer asked.
_PATIENCE = 10.0
# Seconds that a look reads what a run has stored; the next look continues.
_SLICE = 1.0
# Answers that are kept. Of more, every second one is dropped, but for the newest.
_MOST, _NEWEST = 2_000, 200


class FollowedQuery:
    """Asks a rank of a running training, or reads what it has stored, as somebody looks.

    A training is asked on a thread, which ends when nobody has looked for ten seconds.

    Args:
        run: the run, of which this object is the only user.

    Attributes:
        live: whether the training itself is asked; known from the first look on.
        over: no more answers will come.
    """

    def __init__(self, run: Run, query: Query, rank: int = 0) -> None:
        self.live = False
        self.over = False
        self._run = run
        self._rank = rank
        self.query = query
        self._lock = threading.Lock()
        self._answers: list[Answer] = []
        self._looked: float | None = None
        self._listener: threading.Thread | None = None
        self._problem: VinedresserError | None = None
        self._stored: StoredRank | None = None
        self._fresh: Iterator[Answer] | None = None

    def look(self) -> Sequence[Answer]:
        """Return the answers so far, at most 2,000 of them; not for several threads at a time.

        Raises:
            ConfigError: the query cannot be put to this run, or it has no such rank.
            UnknownTensor: the run has no such names.
            QueryError: the run has the names, but never as the query needs them.
            AgentAway: the training cannot be asked any more, and has not answered.
            StoreError: the storage refused.
        """
        check_rank(self._run, self._rank)
        if self._looked is None:
            self.live = is_asked_live(self._run)
        self._looked = time.monotonic()
        if not self.over:
            if self.live:
                self._listen()
            else:
                self._read_safely()
        with self._lock:
            if self._problem is not None and not self._answers:
                raise self._problem
            return [*self._answers]

    def _add(self, answer: Answer) -> None:
        with self._lock:
            self._answers.append(answer)
            if len(self._answers) > _MOST:
                del self._answers[:-_NEWEST:2]

    def _listen(self) -> None:
        if self._listener is None or not self._listener.is_alive():
            self._listener = threading.Thread(target=self._receive, name="asking", daemon=True)
            self._listener.start()

    def _receive(self) -> None:
        """Ask the training until it ends, or nobody looks."""
        try:
            pauses = ask_with_pauses(self._run.path, self.query, rank=self._rank, rate=DEFAULT_RATE)
            with closing(pauses) as answers:  # type: ignore[type-var]
                for answer in answers:
                    if answer is not None:
                        self._add(answer)
                    if time.monotonic() - (self._looked or 0.0) > _PATIENCE:
                        return
        except VinedresserError as error:
            self._problem = error
        self.over = True

    def _read_safely(self) -> None:
        self._problem = None
        try:
            self._read()
        except VinedresserError as error:
            self._problem, self._fresh = error, None
            # What is wrong now will not become right any more.
            self.over = self._run.finished

    def _read(self) -> None:
        """Read what the run has stored since the last look."""
        deadline = time.monotonic() + _SLICE
        if self._fresh is None:
            # Asked before reading: after the end, nothing is missed.
            ends = self._run.finished
            self._run.refresh()
            if self._rank not in self._run.ranks:
                if ends and self._run.ranks:
                    told = f"rank {self._rank}: {self._run.path} has stored nothing of it"
                    raise ConfigError(told)
                if not ends:
                    return
            if self._stored is None:
                check_stored(self._run, self.query)
                self._stored = StoredRank(self._run, self.query, self._rank)
            self._fresh = self._every_fresh(self._stored, ends=ends)
        for answer in self._fresh:
            self._add(answer)
            if time.monotonic() > deadline:
                return
        self._fresh = None

    def _every_fresh(self, stored: StoredRank, *, ends: bool) -> Iterator[Answer]:
        yield from stored.fresh()
        if not ends:
            return
        yield from stored.last()
        if not stored.answerable:
            explain_silence(self._run, self.query)
        self.over = True
