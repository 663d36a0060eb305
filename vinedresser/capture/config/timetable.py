"""Looking up what is due at a train step, instead of working it out for each."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Sequence
from typing import Generic, NamedTuple, TypeVar

from vinedresser.store.collections.schedule import SaveConfig

__all__ = ["Timetable"]

T = TypeVar("T")


class _Span(NamedTuple, Generic[T]):
    """Steps between which no save config begins or ends.

    Attributes:
        first: of them.
        last: the first that is none of them; None: it goes on for ever.
        beats: ``(every, remainder)`` of those that are due now and then, each once.
        found: what was worked out so far, by which of the beats fall on the step; None where
            nothing is kept.
    """

    first: int
    last: int | None
    beats: tuple[tuple[int, int], ...]
    found: dict[tuple[bool, ...], T] | None


class Timetable(Generic[T]):
    """What follows at each train step from whether some save configs are due.

    Most have their period in common with others, so that few questions tell them all. What a
    predicate decides is worked out each time.

    Args:
        saves: all on which it depends.
        work_out: returns what follows at a step.
    """

    def __init__(self, saves: Sequence[SaveConfig], work_out: Callable[[int], T]) -> None:
        self._saves = [save for save in saves if "train" in save.modes]
        self._work_out = work_out
        self._kept = not any(callable(save.when) for save in self._saves)
        edges = {0}
        for save in self._saves:
            edges |= {save.start, *save.steps, *(step + 1 for step in save.steps)}
            if save.stop is not None:
                edges.add(save.stop)
        self._edges = sorted(edges)
        self._span: _Span[T] = self._around(0)

    def at(self, step: int) -> T:
        """Return what follows at a train step."""
        # One look at it: another thread may ask meanwhile.
        span = self._span
        if step < span.first or (span.last is not None and step >= span.last):
            span = self._span = self._around(step)
        if span.found is None:
            return self._work_out(step)
        key = tuple([step % every == remainder for every, remainder in span.beats])
        found = span.found.get(key)
        if found is None:
            found = span.found[key] = self._work_out(step)
        return found

    def _around(self, step: int) -> _Span[T]:
        """Return the span that a step lies in."""
        place = bisect_right(self._edges, step)
        first = self._edges[place - 1]
        last = self._edges[place] if place < len(self._edges) else None
        beats = dict.fromkeys(
            (save.every, save.start % save.every)
            for save in self._saves
            # What is due at every step says nothing of any.
            if save.every > 1 and save.start <= first and (save.stop is None or save.stop > first)
        )
        return _Span(first, last, tuple(beats), {} if self._kept else None)
