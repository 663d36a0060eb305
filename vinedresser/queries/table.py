"""The standing queries of a training: equal ones are computed once."""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from typing import NamedTuple

from vinedresser.errors import ConfigError
from vinedresser.queries.answer import Answer
from vinedresser.queries.observables import Observables
from vinedresser.queries.query import Query
from vinedresser.queries.standing import DEFAULT_RATE, StandingQuery

__all__ = ["Armed", "MOST_STREAMS", "SHARE", "Sink", "StreamTable", "Subscription"]

MOST_STREAMS = 64
# Events after which a query without an answer is explained; some tensors come only now and then.
_MOST_SILENT = 100

# Receives answers on the training's thread; it must neither wait nor raise.
Sink = Callable[[Answer], object]
SHARE = 0.05
"""Share of a training's time for evaluating its queries, except for those without a rate."""

# Seconds that may be spent in advance.
_CREDIT = 0.25


@dataclass(eq=False)
class _Stream:
    standing: StandingQuery
    sinks: tuple[Sink, ...] = ()
    flush: bool = False
    # Events of its mode so far that did not offer what it reads.
    silent: int = 0

    def deliver(self, answer: Answer) -> None:
        for sink in self.sinks:
            sink(answer)


class Armed(NamedTuple):
    """The queries of a table at one moment.

    Attributes:
        needs: names, collections and globs that they will read.
        idle: some of them read nothing, although the event is of their mode.
        thinned: those of them that leave the event out to keep the budget of all.
        until: until when all of them leave train steps out to keep their rates, by the clock of
            the table; `-inf` if one of them does not, or has to read values to know its windows.
    """

    streams: tuple[_Stream, ...]
    needs: frozenset[str]
    idle: bool
    thinned: frozenset[_Stream]
    until: float

    @property
    def passed_over(self) -> bool:
        """Whether it is enough to pass the train step over; see `StreamTable.pass_over`."""
        return self.until > -math.inf


class Subscription:
    """One receiver of a stream.

    Args:
        sink: receives the answers.
    """

    def __init__(
        self, table: StreamTable, key: tuple[object, ...], stream: _Stream, sink: Sink
    ) -> None:
        self._table = table
        self._key = key
        self._stream = stream
        self._sink = sink

    @property
    def stream(self) -> str:
        """Name of the stream."""
        return self._stream.standing.stream

    @property
    def ended(self) -> str | None:
        """Why the query was disabled, or None."""
        return self._stream.standing.ended

    def flush(self) -> None:
        """Close the window when the next event begins, without that event; from any thread."""
        self._stream.flush = True
        self._table.changed = True

    def close(self) -> None:
        """Receive no more; the stream of the last receiver ends. From any thread, any number."""
        self._table.remove(self._key, self._stream, self._sink)


class StreamTable:
    """The standing queries of one rank of a training.

    Queries are added and removed from any thread; `observe` runs on the training's thread and never
    waits for another one.

    Attributes:
        changed: a receiver came, went or flushed its stream since the queries were armed.

    Args:
        clock: time in seconds for the rates.
        known: return names that events may offer, for messages about unknown ones.
    """

    def __init__(
        self,
        clock: Callable[[], float] = time.monotonic,
        known: Callable[[], Iterable[str]] = tuple,
    ) -> None:
        self._clock = clock
        self._budget = _SharedBudget(clock)
        self._known = known
        self.changed = False
        self._lock = threading.Lock()
        self._by_key: dict[tuple[object, ...], _Stream] = {}
        # Replaced as a whole, so that the training's thread needs no lock.
        self._streams: tuple[_Stream, ...] = ()

    def __len__(self) -> int:
        return len(self._streams)

    @property
    def needs(self) -> frozenset[str]:
        """Names, collections and globs that the queries read; empty if nobody asks."""
        active = (stream.standing for stream in self._streams if stream.standing.ended is None)
        return frozenset().union(*(standing.needs for standing in active))

    def arm(self, mode: str) -> Armed:
        """Return the queries as they stand, and what they will read at the next event of a mode.

        Queries that would leave the event out to keep their rate read nothing, if the clock still
        shows the same time at the event.
        """
        self.changed = False
        streams = self._streams
        needs: frozenset[str] = frozenset()
        # Evaluations and events of the user may be rare, and are never left out.
        thinned = self._thinned(streams) if mode == "train" else frozenset[_Stream]()
        idle, until = False, math.inf if mode == "train" and not thinned else -math.inf
        for stream in streams:
            standing = stream.standing
            if standing.query.every.mode == mode:
                if standing.idle or stream in thinned:
                    idle = True
                    until = min(until, standing.until if standing.numbered else -math.inf)
                else:
                    needs |= standing.needs
                    until = -math.inf
        return Armed(streams, needs, idle, thinned, until if idle else -math.inf)

    def _thinned(self, streams: Iterable[_Stream]) -> frozenset[_Stream]:
        """Return the streams that leave out the next event to keep the budget of all."""
        if not self._budget.used_up:
            return frozenset()
        found = (stream for stream in streams if stream.standing.thins and not stream.standing.idle)
        return frozenset(found)

    def subscribe(
        self, query: Query, sink: Sink, *, stream: str = "", rate: float | None = DEFAULT_RATE
    ) -> Subscription:
        """Add a receiver of a query's answers.

        Args:
            query: the query; it is computed once for all receivers with the same query (except for
                spaces), name and rate.
            sink: receives each answer on the training's thread; must neither wait nor raise.
            stream: name of the stream; "": the query's normalised text.
            rate: maximum number of windows per second; None: no limit.

        Raises:
            ConfigError: there are too many streams.
        """
        key = (query.normalised, stream, rate)
        with self._lock:
            found = self._by_key.get(key)
            if found is None or found.standing.ended is not None:
                if len(self._by_key) >= MOST_STREAMS:
                    raise ConfigError(f"{MOST_STREAMS} queries stand already: end one first")
                standing = StandingQuery(query, stream=stream, rate=rate, clock=self._clock)
                found = _Stream(standing)
                self._by_key[key] = found
            found.sinks = (*found.sinks, sink)
            self._streams = tuple(self._by_key.values())
            self.changed = True
        return Subscription(self, key, found, sink)

    def remove(self, key: tuple[object, ...], stream: _Stream, sink: Sink) -> None:
        """Remove a receiver; see `Subscription.close`."""
        with self._lock:
            stream.sinks = tuple(one for one in stream.sinks if one is not sink)
            if not stream.sinks and self._by_key.get(key) is stream:
                del self._by_key[key]
            self._streams = tuple(self._by_key.values())
            self.changed = True

    def observe(self, observables: Observables, armed: Armed | None = None) -> None:
        """Evaluate queries at an event, and deliver the answers of closed windows.

        The arrays of all queries are moved to host memory in one transfer.

        Args:
            armed: the queries, from before the event; None: all.
        """
        waiting = []
        streams = self._streams if armed is None else armed.streams
        thinned = () if armed is None else armed.thinned
        for stream in streams:
            self._flush(stream)
            if stream in thinned:
                answers, pending = stream.standing.leave_out(observables), None
            else:
                began = self._clock_of(stream)
                answers, pending = stream.standing.begin(observables)
                self._count_from(began)
            for answer in answers:
                stream.deliver(answer)
            if pending is not None:
                waiting.append((stream, pending))
            elif not stream.standing.answerable:
                self._explain(stream, observables)
        if not waiting:
            return
        arrays = [array for _, pending in waiting for array in pending.arrays]
        values = observables.numeric.fetch(arrays) if arrays else []
        start = 0
        for stream, pending in waiting:
            end = start + len(pending.arrays)
            began = self._clock_of(stream)
            answers = stream.standing.complete(observables, pending, values[start:end])
            self._count_from(began)
            for answer in answers:
                stream.deliver(answer)
            start = end

    def pass_over(self, observables: Observables, armed: Armed) -> None:
        """Do the same as `observe` at a train step that all its queries leave out for their rates.

        Args:
            observables: the event; needs no values.
            armed: the queries, from before the event.
        """
        for stream in armed.streams:
            self._flush(stream)
            for answer in stream.standing.pass_over(observables):
                stream.deliver(answer)

    def _clock_of(self, stream: _Stream) -> float | None:
        """Return the computing time so far; None if that of the query does not count."""
        # At the first evaluation, libraries load what they need.
        counts = stream.standing.limited and stream.standing.answerable
        return self._budget.computing() if counts else None

    def _count_from(self, began: float | None) -> None:
        """Count the computing time since then, unless it is None."""
        if began is not None:
            self._budget.spend(self._budget.computing() - began)

    def _flush(self, stream: _Stream) -> None:
        if stream.flush:
            stream.flush = False
            answer = stream.standing.flush()
            if answer is not None:
                stream.deliver(answer)

    def _explain(self, stream: _Stream, observables: Observables) -> None:
        """Say once which name is unknown, or after a while which one is known, but never offered.

        Args:
            stream: a stream without any answer so far.
            observables: an event that does not offer everything that it reads.
        """
        standing = stream.standing
        every = standing.query.every
        # Values of the user's event are offered at no other one.
        events = (every.event,) if every.kind == "event" else ("step", "batch", "evaluation")
        if observables.event not in events or observables.mode != every.mode:
            return
        stream.silent += 1
        answer = None
        if stream.silent == 1:
            answer = standing.explain(observables, self._known())
        elif stream.silent == _MOST_SILENT:
            answer = standing.unoffered(observables, stream.silent)
        if answer is not None:
            stream.deliver(answer)

    def finish(self) -> None:
        """Deliver the answers of the open windows as the last ones; the training has ended."""
        for stream in self._streams:
            answer = stream.standing.flush()
            if answer is not None:
                stream.deliver(replace(answer, ended=True))


class _SharedBudget:
    """An allowance that grows with the time of a training, up to a credit with which it starts.

    Args:
        clock: time of the training in seconds.
        computing: computing time of the thread in seconds, which other programs do not change.
    """

    def __init__(
        self,
        clock: Callable[[], float] = time.monotonic,
        computing: Callable[[], float] = time.thread_time,
    ) -> None:
        self.computing = computing
        self._clock = clock
        self._allowance = _CREDIT
        self._last: float | None = None

    @property
    def used_up(self) -> bool:
        """Whether queries have to leave out the event that begins now."""
        now = self._clock()
        if self._last is not None:
            grown = self._allowance + SHARE * max(now - self._last, 0.0)
            self._allowance = min(grown, _CREDIT)
        self._last = now
        return self._allowance < 0

    def spend(self, seconds: float) -> None:
        """Account for the evaluation of a query."""
        self._allowance -= seconds
