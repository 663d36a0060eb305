"""Yielding steps as they are committed, in an order that does not depend on timing."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from heapq import heappop, heappush

from vinedresser.errors import NotARun, StoreError
from vinedresser.objects import Storage
from vinedresser.objects.location import is_remote
from vinedresser.plain_logs import plain_logger
from vinedresser.store.index.layout import LayoutPool
from vinedresser.store.problems import Problems
from vinedresser.store.reading.index_reading import IndexCursor
from vinedresser.store.reading.selection import Selector
from vinedresser.store.reading.step import SegmentColumns, Step
from vinedresser.store.records import (
    ExitRecord,
    RunRecord,
    WaitingRecord,
    index_key,
    read_record,
    write_record,
)
from vinedresser.store.status import rank_is_over, run_status

__all__ = ["Urgency", "follow"]

_logger = plain_logger(__name__)

# Seconds for which a request for urgency is valid, and after which it is renewed.
_VALID, _RENEWED = 2.0, 1.0
# Seconds between polls while nothing is new: in a directory; and on an object store, where each
# poll costs a round trip and money, the first and the longest pause.
_LOCAL = 0.02
_REMOTE, _LONGEST = 0.25, 2.0
# The same for urgent readers.
_URGENT, _LONGEST_URGENT = 0.05, 0.25
# Seconds between checks for live processes.
_LIFE, _LIFE_REMOTE = 0.25, 1.0


class _Polling:
    """The pauses of a waiting reader; they double up to a limit while nothing is new.

    Args:
        poll: seconds of every pause; None: 0.02 for a directory; on an object store 0.25, doubling
            up to 2, and if urgent 0.05, doubling up to 0.25.
        urgent: the writer was asked to commit every step immediately.

    Attributes:
        life: seconds between checks for live processes.
    """

    def __init__(self, storage: Storage, poll: float | None, *, urgent: bool) -> None:
        remote = is_remote(storage.location)
        self.life = _LIFE_REMOTE if remote else _LIFE
        if poll is not None or not remote:
            self._first = self._longest = _LOCAL if poll is None else poll
        elif urgent:
            self._first, self._longest = _URGENT, _LONGEST_URGENT
        else:
            self._first, self._longest = _REMOTE, _LONGEST
        self._next = self._first

    def wait(self) -> None:
        """Wait, because nothing was new."""
        time.sleep(self._next)
        self._next = min(2 * self._next, self._longest)

    def came(self) -> None:
        """Return to the shortest pause, because something was new."""
        self._next = self._first


class Urgency:
    """Keeps asking the writer to commit every step immediately."""

    def __init__(self, storage: Storage) -> None:
        self._storage = storage
        self._renew_at = -float("inf")

    def renew(self) -> None:
        """Renew the request if it is due; a failure is only logged."""
        if time.monotonic() < self._renew_at:
            return
        self._renew_at = time.monotonic() + _RENEWED
        try:
            write_record(self._storage, WaitingRecord(time.time() + _VALID))
        except StoreError as error:
            _logger.warning("steps arrive in batches: the request for urgency failed: %s", error)


class _RankSteps:
    """The steps of one rank, read one ahead.

    Attributes:
        ahead: the next step; None: not committed or not read yet.
        exhausted: there are no more steps.
    """

    def __init__(
        self, storage: Storage, rank: int, cursor: IndexCursor, selector: Selector, life: float
    ) -> None:
        self.ahead: Step | None = None
        self.exhausted = False
        # Created one by one: a segment may contain thousands of steps.
        self._rest: Iterator[Step] = iter(())
        self._storage = storage
        self._rank = rank
        self._cursor = cursor
        self._selector = selector
        self._life = life
        self._look_at = 0.0

    def fill(self, *, run_over: bool) -> None:
        """Read the next step if there is one, and detect the end."""
        if self.ahead is None:
            self.ahead = next(self._rest, None)
        if self.ahead is not None or self.exhausted:
            return
        over = run_over or self._rank_over()
        segment = self._cursor.next()
        while segment is None and over and self._cursor.skip_gap():
            segment = self._cursor.next()
        if segment is not None:
            first = self._cursor.records - len(segment)
            self._rest = SegmentColumns(segment, first, self._selector).steps()
            self.ahead = next(self._rest, None)
        self.exhausted = segment is None and over

    def take(self) -> Step:
        """Return the next step, which must have been read."""
        step, self.ahead = self.ahead, None
        assert step is not None, "filled before"
        return step

    def _rank_over(self) -> bool:
        if time.monotonic() < self._look_at:
            return False
        self._look_at = time.monotonic() + self._life
        return rank_is_over(self._storage, self._rank)


class _EndDetector:
    """Detects the end of a run: one request per check, and occasionally a few more."""

    def __init__(self, storage: Storage, life: float) -> None:
        self._storage = storage
        self._life = life
        self._ended = False
        self._look_at = 0.0

    def reached(self) -> bool:
        ended = self._storage.exists(ExitRecord.KEY)
        if ended == self._ended and time.monotonic() < self._look_at:
            return False
        self._ended = ended
        self._look_at = time.monotonic() + self._life
        return run_status(self._storage).over


def follow(
    storage: Storage,
    problems: Problems,
    *,
    poll: float | None,
    urgency: Urgency | None,
    on_idle: Callable[[], None] | None = None,
) -> Iterator[Step]:
    """Yield every committed step until the run ends; see `Run.follow`.

    Args:
        problems: collects corrupt data.
        poll: seconds between polls while nothing is new; None: see `_Polling`.
        urgency: asks the writer to commit every step immediately; None: do not ask.
        on_idle: called after each poll that found nothing new.

    Raises:
        NotARun: run.json was removed.
        StoreError: the storage refused.
    """
    pacing = _Polling(storage, poll, urgent=urgency is not None)
    ending = _EndDetector(storage, pacing.life)
    begun = False
    # The ranks whose next step is there, in its order, and those whose is not.
    ready: list[tuple[tuple[int, int, int], _RankSteps]] = []
    lacking: list[_RankSteps] = []
    while True:
        if urgency is not None:
            urgency.renew()
        # Checked before reading steps: after the end, no step can be missed below.
        over = ending.reached()
        if not begun and (over or storage.exists(index_key(0, 0))):
            begun = True
            lacking = _sources(storage, problems, pacing.life)
        lacking = [one for one in lacking if _lacks(one, ready, run_over=over)]
        idle = True
        while ready and not lacking:
            _, first = heappop(ready)
            yield first.take()
            if _lacks(first, ready, run_over=over):
                lacking.append(first)
            idle = False
        if over:
            return
        if idle:
            if on_idle is not None:
                on_idle()
            pacing.wait()
        else:
            pacing.came()


def _sources(storage: Storage, problems: Problems, life: float) -> list[_RankSteps]:
    """Return the steps of each rank; rank 0 records their number before its first commit."""
    info = read_record(storage, RunRecord)
    if info is None:
        raise NotARun(f"{storage.location}: no longer a run: {RunRecord.KEY} was removed")
    pool = LayoutPool()
    selector = Selector(info.capture)
    return [
        _RankSteps(storage, rank, IndexCursor(storage, rank, pool, problems), selector, life)
        for rank in range(info.world_size)
    ]


def _lacks(
    source: _RankSteps, ready: list[tuple[tuple[int, int, int], _RankSteps]], *, run_over: bool
) -> bool:
    """Read the next step of a rank and add it to a heap; return whether it is not there yet."""
    source.fill(run_over=run_over)
    step = source.ahead
    if step is not None:
        heappush(ready, ((step.step, step.ordinal, step.rank), source))
    return step is None and not source.exhausted
