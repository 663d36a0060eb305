"""A lookup table for values that depend on the due save configs."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Sequence
from typing import Generic, NamedTuple, TypeVar

from vinedresser.store.collections.schedule import SaveConfig

T = TypeVar("T")


class _Span(NamedTuple, Generic[T]):
    """A range of steps in which no save config starts or stops.

    Attributes:
        last: end of the range, exclusive; None: unbounded.
        beats: unique ``(every, remainder)`` of the periodic save configs.
        found: known values by which beats fall on the step; None: values are not kept.
    """

    first: int
    last: int | None
    beats: tuple[tuple[int, int], ...]
    found: dict[tuple[bool, ...], T] | None


class Timetable(Generic[T]):
    """Caches a value that depends on the save configs due at a train step.

    Most save configs share their period with others, so few comparisons determine the value. If
    any save config has a predicate, nothing is cached.

    Args:
        work_out: return the value at a step.
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
        """Return the value at a train step."""
        # Read once: another thread may replace it.
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
        """Return the span that contains a step."""
        place = bisect_right(self._edges, step)
        first = self._edges[place - 1]
        last = self._edges[place] if place < len(self._edges) else None
        beats = dict.fromkeys(
            (save.every, save.start % save.every)
            for save in self._saves
            # Save configs that are due at every step make no difference.
            if save.every > 1 and save.start <= first and (save.stop is None or save.stop > first)
        )
        return _Span(first, last, tuple(beats), {} if self._kept else None)
