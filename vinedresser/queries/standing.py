"""A standing query: evaluated at each event, answered when a window closes."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from vinedresser.errors import CorruptData, QueryError, UnknownTensor
from vinedresser.queries.answer import LARGEST_ANSWER, Answer, Kind
from vinedresser.queries.evaluating import Evaluator
from vinedresser.queries.folds.window import WindowFold
from vinedresser.queries.language.budget import OF_A_TRAINING, Limits
from vinedresser.queries.language.values import Pending
from vinedresser.queries.naming import check_names, matching
from vinedresser.queries.observables import Observables
from vinedresser.queries.query import Query

__all__ = ["DEFAULT_RATE", "StandingQuery"]

# Windows per second.
DEFAULT_RATE = 10.0
# Kinds of values that scripts save when they like.
_OF_THE_USER = ("saved/", "metrics/")


@dataclass
class _Window:
    """The open window: its place, and its events so far."""

    number: int = 0
    since: int = 0
    step: int = 0
    events: int = 0
    time: float = 0.0
    rank: int = 0
    key: float | None = None
    skipped: bool = False
    thinned: int = 0

    @property
    def empty(self) -> bool:
        """Whether no event has counted."""
        return not self.events and not self.skipped


class StandingQuery:
    """Evaluates a query at the events of a training, and answers at the end of each window.

    An event counts if it offers everything that the query reads and is in the mode of its windows:
    steps of the training, or batches for ``every evaluation``. The event that closes a window
    ("epoch", "evaluation") counts only if nothing else did. Steps are grouped by their numbers:
    ``every 100 steps`` has the windows 0 to 99, 100 to 199, whenever it began. A window is
    evaluated completely or, to keep the rate, dropped completely and counted. Only to keep the
    budget of all queries (`SharedBudget`), events of a window are left out as well and counted,
    except those of sums and counts.

    Not thread-safe, except that `flush` may be called by another thread if `observe` cannot run at
    the same time.

    Attributes:
        stream: name of the stream.
        ended: why the query was disabled, or None. It then costs nothing and answers nothing.
        answerable: an event has offered everything that it reads.
        damage: why the last event could not be read from the store, so that it did not count; None
            if it could.

    Args:
        stream: name of the stream; "" for the query's normalised text.
        rate: maximum number of windows per second; None: no limit.
        limits: what an evaluation may cost.
        clock: time in seconds for the rate.
    """

    def __init__(
        self,
        query: Query,
        *,
        stream: str = "",
        rate: float | None = DEFAULT_RATE,
        limits: Limits = OF_A_TRAINING,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.query = query
        self.stream = stream or query.normalised
        self.ended: str | None = None
        self._every = str(query.every)
        self._evaluator = Evaluator(query, limits)
        self._fold = WindowFold(query.reduce)
        self._gap = 1 / rate if rate else 0.0
        # A partial sum is not a sum.
        self._whole = query.reduce is not None and query.reduce.function in ("sum", "count")
        self._clock = clock
        self._ready = -math.inf
        self._window = _Window()
        self._dropped = self._thinned = 0
        self.answerable = False
        self.damage: str | None = None

    @property
    def needs(self) -> frozenset[str]:
        """Names, collections and globs that it reads; see `Query.needs`."""
        return self.query.needs

    @property
    def idle(self) -> bool:
        """Whether it will read nothing at the next event: it has ended, or keeps to its rate."""
        if self.ended is not None:
            return True
        skips = self._window.skipped or self._window.empty
        return skips and self._clock() < self._ready

    @property
    def until(self) -> float:
        """Until when it keeps to its rate, by its clock; `inf` if it has ended."""
        return math.inf if self.ended is not None else self._ready

    @property
    def numbered(self) -> bool:
        """Whether the windows of train steps are known without reading values of the events."""
        return self.query.every.kind != "epoch"

    @property
    def limited(self) -> bool:
        """Whether it has a rate, and so a part in the budget of all queries."""
        return self._gap > 0

    @property
    def thins(self) -> bool:
        """Whether it leaves out the next event once the budget of all queries is used up."""
        return self.limited and self.ended is None and not (self._whole and self._window.events)

    def observe(self, observables: Observables) -> list[Answer]:
        """Evaluate the query at an event; return the answers of the windows that it closes.

        There are none or one, rarely two: of a window that ended without an event at its end, and
        of one that consists of this event. Faults of the query are answers with an error.
        """
        found, pending = self.begin(observables)
        if pending is None:
            return found
        values = observables.numeric.fetch(pending.arrays) if pending.arrays else []
        return [*found, *self.complete(observables, pending, values)]

    def begin(self, observables: Observables) -> tuple[list[Answer], Pending | None]:
        """Return answers of earlier windows, and what waits for its arrays; None without any.

        A caller with several queries moves the arrays of all in one transfer.
        """
        if self.ended is not None:
            return [], None
        if observables.mode != self.query.every.mode and not self._closes(observables):
            return [], None
        answers = self._close_earlier(observables)
        if not self._counts(observables):
            return answers + self._close_after(observables), None
        self.damage = pending = None
        try:
            pending = self._evaluator.begin(observables)
        except CorruptData as error:
            self.damage = str(error)
        except QueryError as error:
            return [*answers, self._end(observables, str(error))], None
        if pending is None:
            return answers + self._close_after(observables), None
        return answers, pending

    def pass_over(self, observables: Observables) -> list[Answer]:
        """Leave a train step out to keep the rate; return as `observe`.

        For a query that was `idle` and `numbered` before the step.
        """
        if self.ended is not None:
            return []
        if observables.mode != self.query.every.mode and not self._closes(observables):
            return []
        if not self._window.empty and not self._window.skipped:
            # An event of the user came in between and counted.
            return self.leave_out(observables)
        answers = self._close_earlier(observables)
        if self._window.empty:
            self._skip(observables)
        return answers + self._close_after(observables)

    def leave_out(self, observables: Observables) -> list[Answer]:
        """Leave a train step out to keep the budget of all queries; return as `observe`."""
        every = self.query.every
        if observables.mode != every.mode and not self._closes(observables):
            return []
        # Other windows are closed by the next event that counts: nothing was captured for this one.
        answers = self._close_earlier(observables) if every.kind == "steps" else []
        window = self._window
        if self.answerable and not window.skipped:
            window.thinned += 1
            self._thinned += 1
        return answers + self._close_after(observables)

    def complete(
        self, observables: Observables, pending: Pending, values: Sequence[NDArray[np.float64]]
    ) -> list[Answer]:
        """Return the answers after an event, given the arrays that waited, as float64."""
        step = observables.step
        try:
            self._evaluator.finish(pending, values, lambda result: self._fold.add(result, step))
        except QueryError as error:
            return [self._end(observables, str(error))]
        self._note(observables)
        return self._close_after(observables)

    def flush(self) -> Answer | None:
        """Close the window now; return its answer, or None if it has no events."""
        if self.ended is not None:
            return None
        return self._answer()

    def _note(self, observables: Observables) -> None:
        window = self._window
        if not window.events:
            window.since, window.rank = observables.step, observables.rank
        window.events += 1
        window.step, window.time = observables.step, observables.time

    def _counts(self, observables: Observables) -> bool:
        """Return whether an event counts in the window, and begin the window with it."""
        if observables.event in ("epoch", "evaluation") and not self._window.empty:
            return False
        if not self._evaluator.offered(observables):
            return False
        self.answerable = True
        window = self._window
        if window.empty:
            partial = self._whole and window.thinned > 0
            if partial or self._clock() < self._ready:
                self._skip(observables)
            else:
                window.key = self._key(observables)
        return not window.skipped

    def _skip(self, observables: Observables) -> None:
        """Begin the window with an event, and drop it."""
        self._window.key = self._key(observables)
        self._window.skipped = True
        self._dropped += 1

    def _key(self, observables: Observables) -> float | None:
        every = self.query.every
        if every.kind == "steps":
            return observables.step // every.amount
        if every.kind == "seconds":
            return observables.time
        if every.kind == "epoch" and "epoch" in observables.names:
            return float(observables.read("epoch"))
        return None

    def _closes(self, observables: Observables) -> bool:
        every = self.query.every
        return observables.event == (every.event if every.kind == "event" else every.kind)

    def _close_earlier(self, observables: Observables) -> list[Answer]:
        """Close the window if the event belongs to a later one."""
        if self._window.empty or self._window.key is None or self.query.every.kind == "seconds":
            return []
        return self._answers() if self._key(observables) != self._window.key else []

    def _close_after(self, observables: Observables) -> list[Answer]:
        """Close the window if the event is its last."""
        every, window = self.query.every, self._window
        if every.kind == "steps":
            last = observables.event == "step" and not (observables.step + 1) % every.amount
        elif every.kind == "seconds":
            last = window.key is not None and observables.time >= window.key + every.amount
        else:
            last = self._closes(observables)
        return self._answers() if last else []

    def _answers(self) -> list[Answer]:
        answer = self._answer()
        return [] if answer is None else [answer]

    def _answer(self) -> Answer | None:
        window = self._window
        if window.empty:
            if window.thinned:
                self._dropped += 1
                self._window = _Window(window.number + 1)
            return None
        self._window = _Window(window.number + 1)
        if window.skipped:
            return None
        kind, value = self._fold.answer()
        self._fold.clear()
        found = self._made(window, kind, value)
        if not found.fits:
            self.ended = f"the result is larger than {LARGEST_ANSWER >> 10} KiB: reduce it further"
            found = self._made(window, "none", None, self.ended)
        if self._gap:
            self._ready = self._clock() + self._gap
        self._dropped = self._thinned = 0
        return found

    def _made(self, window: _Window, kind: Kind, value: object, error: str | None = None) -> Answer:
        query = self.query
        return Answer(
            query=query.text,
            stream=self.stream,
            every=self._every,
            window=window.number,
            since=window.since,
            step=window.step,
            mode=query.every.mode,
            rank=window.rank,
            time=window.time,
            events=window.events,
            kind=kind,
            value=value,
            dropped=self._dropped,
            thinned=self._thinned,
            error=error,
            ended=self.ended is not None,
        )

    def explain(self, observables: Observables, known: Iterable[str] = ()) -> Answer | None:
        """Return an answer that says which name is unknown; None if all are known.

        Args:
            observables: an event.
            known: further names, which other events offer.
        """
        try:
            check_names(self.needs, [*observables.names, *known])
        except UnknownTensor as error:
            place = _Window(self._window.number, observables.step, observables.step)
            place.time, place.rank = observables.time, observables.rank
            return self._made(place, "none", None, str(error))
        return None

    def unoffered(self, observables: Observables, events: int) -> Answer | None:
        """Return an answer that says which names no event has offered; None if it is the user's.

        Args:
            observables: the latest event.
            events: number of events.
        """
        missing = [need for need in sorted(self.needs) if not matching(need, observables.names)]
        if not missing or any(one.startswith(_OF_THE_USER) for one in missing):
            return None
        told = f"{', '.join(missing)}: known, but not offered at any of {events} events"
        place = _Window(self._window.number, observables.step, observables.step)
        place.time, place.rank = observables.time, observables.rank
        return self._made(place, "none", None, told)

    def _end(self, observables: Observables, reason: str) -> Answer:
        """Disable the query for good and say why."""
        self.ended = reason
        self._note(observables)
        self._fold.clear()
        return self._made(self._window, "none", None, reason)
