"""Asking a running training: one rank, or several at once."""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Generator, Iterator, Sequence
from contextlib import closing

from vinedresser.errors import AgentAway, QueryError, VinedresserError
from vinedresser.queries.answer import Answer
from vinedresser.queries.live.client import AgentLost, agent_status, ask_live, ask_with_pauses
from vinedresser.queries.query import Query
from vinedresser.queries.ranks import check_rank
from vinedresser.store.reading.reader import Run
from vinedresser.store.status import Status

__all__ = ["ask_running", "is_asked_live"]

# Seconds from the end of an agent until the end of its run is noted.
_NOTED_WITHIN = 5.0
_POLL = 0.1
# Answers that wait for a slow reader.
_MOST_WAITING = 1000


def is_asked_live(run: Run) -> bool:
    """Return whether a run is running, and lets itself be asked on this machine."""
    if run.finished:
        return False
    try:
        agent_status(run.path)
    except AgentAway:
        return False
    return True


def ask_running(
    run: Run, query: Query, *, ranks: Sequence[int] | None, rate: float | None
) -> Iterator[Answer]:
    """Ask a running training; yield the answers as they come, until it ends.

    Closing the iterator ends the query.

    Args:
        ranks: ranks to ask; None: all.
        rate: maximum number of windows per second and rank; None: no limit.

    Raises:
        AgentAway: the run is over, a rank is dead, or it does not let itself be asked; or the run
            died before its last answers.
        ConfigError: the run does not have this rank, or the training refuses the query.
        QueryError: the training has no such name, or the query costs too much.
    """
    status = run.status
    if status.over:
        raise AgentAway(f"{run.path}: the run is {status.words}, not running")
    chosen = tuple(range(run.info.world_size) if ranks is None else ranks)
    for rank in chosen:
        check_rank(run, rank)
    try:
        with closing(_answers(run.path, query, chosen, rate)) as answers:
            for answer in answers:
                if answer.error is not None:
                    # The training goes on, and may never have the name.
                    raise QueryError(f"{run.path}: {answer.error}")
                yield answer
    except AgentAway as error:
        lost = isinstance(error, AgentLost)
        status = _after_the_end(run) if lost else run.status
        if status.state in ("finished", "stopped"):
            return
        if status.over:
            why = f": {status.reason}" if status.reason else ""
            raise AgentAway(f"{run.path}: the run is {status.words}{why}") from error
        hint = status.reason or ("" if lost else _how_to_be_asked(run))
        raise AgentAway(f"{error}: {hint}" if hint else str(error)) from error


def _answers(
    location: str, query: Query, ranks: Sequence[int], rate: float | None
) -> Generator[Answer]:
    if len(ranks) == 1:
        yield from ask_live(location, query, rank=ranks[0], rate=rate)
    else:
        yield from _RankAnswers(location, query, ranks, rate)


def _after_the_end(run: Run) -> Status:
    """Return the status of a run whose agent has gone away, once its end is noted."""
    deadline = time.monotonic() + _NOTED_WITHIN
    while True:
        status = run.status
        if status.over or status.reason or time.monotonic() > deadline:
            return status
        time.sleep(_POLL)


def _how_to_be_asked(run: Run) -> str:
    """Return why no agent listens, as far as that is known."""
    if run.info.live.get("enabled"):
        return (
            "it may be asked, but has no hook yet: its training has not begun, or it is none that "
            "`vinedresser run` captures"
        )
    return (
        "start the training with `vinedresser run --live`, Hook(live=True) or [live] enabled = "
        "true, and ask as its user on its machine"
    )


class _RankAnswers:
    """The answers of several ranks as they come, each read by a thread.

    Args:
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
