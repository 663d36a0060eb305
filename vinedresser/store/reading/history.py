"""The committed segments of one rank."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from vinedresser.objects import Storage
from vinedresser.store.index.index_record import Rows
from vinedresser.store.index.layout import AliasLayout, ColumnLayout, LayoutPool, TensorLayout
from vinedresser.store.problems import Problems
from vinedresser.store.reading.index_lookup import IndexLookup
from vinedresser.store.reading.index_reading import IndexCursor
from vinedresser.store.segments.segment import Segment, TensorRow
from vinedresser.store.step_record import MODES, Mode

_NO_ROWS = Rows(np.empty(0, np.uint8), np.empty(0, np.int64), np.empty(0, np.float64))


class History:
    """The segments of one rank, searchable by step.

    The index is loaded on first use; a single tensor can be found without loading it.

    Args:
        pool: shares equal layouts.
        problems: collects corrupt data.
    """

    def __init__(self, storage: Storage, rank: int, pool: LayoutPool, problems: Problems) -> None:
        self.storage = storage
        self._lookup = IndexLookup(storage, rank, pool, problems)
        self._cursor = IndexCursor(storage, rank, pool, problems)
        self._loaded = False
        self._segments: list[Segment] = []
        self._firsts: list[int] = []
        # Dicts used as ordered sets, in the order of first capture.
        self._column_layouts: dict[ColumnLayout, None] = {}
        self._tensor_layouts: dict[TensorLayout, None] = {}
        self._alias_layouts: dict[AliasLayout, None] = {}
        self._rows = _NO_ROWS
        self._ascending = True

    @property
    def records(self) -> int:
        """Number of records loaded so far."""
        return self._cursor.records

    def refresh(self) -> int:
        """Load newly committed segments; return the number of new records."""
        before = self.records
        while (segment := self._next()) is not None:
            self._firsts.append(self.records - len(segment))
            self._segments.append(segment)
            self._column_layouts.update(dict.fromkeys(g.layout for g in segment.record.columns))
            self._tensor_layouts.update(dict.fromkeys(g.layout for g in segment.record.tensors))
            self._alias_layouts.update(dict.fromkeys(g.layout for g in segment.record.aliases))
        self._loaded = True
        return self.records - before

    def _next(self) -> Segment | None:
        segment = self._cursor.next()
        # The first load also skips gaps of several records, which needs a listing.
        while segment is None and not self._loaded and self._cursor.skip_gap():
            segment = self._cursor.next()
        return segment

    def _load(self) -> None:
        if not self._loaded:
            self.refresh()

    @property
    def segments(self) -> list[Segment]:
        """The segments, in the order of their numbers."""
        self._load()
        return self._segments

    def layouts(self) -> Iterator[TensorLayout | AliasLayout | ColumnLayout]:
        """Yield the layouts of full tensors, then those of their statistics."""
        self._load()
        yield from self._tensor_layouts
        yield from self._alias_layouts
        yield from (layout for layout in self._column_layouts if layout.reductions is not None)

    @property
    def column_layouts(self) -> list[ColumnLayout]:
        """The layouts of scalars and statistics, in the order of first capture."""
        self._load()
        return list(self._column_layouts)

    @property
    def rows(self) -> Rows:
        """Modes, steps and times of all records, in capture order."""
        self._load()
        known = len(self._rows.steps)
        if known < self.records:
            fresh = self._segments[bisect_right(self._firsts, known - 1) :]
            parts = zip(self._rows, *(segment.record.rows for segment in fresh), strict=True)
            self._rows = Rows(*(np.concatenate(part) for part in parts))
            self._ascending = bool(np.all(np.diff(self._rows.steps) >= 0))
        return self._rows

    def first(self, number: int) -> int:
        """Return the ordinal of a segment's first record within the rank.

        Args:
            number: position of the segment in `segments`.
        """
        return self._firsts[number]

    def steps_of(self, ordinals: NDArray[np.int64], mode: Mode | None) -> NDArray[np.int64]:
        """Return the distinct steps of some records; int64 [steps], ascending.

        Args:
            ordinals: ordinals of the records, int64 [n].
            mode: only records of this mode; None: all.
        """
        modes, steps, _ = self.rows
        if mode is not None:
            ordinals = ordinals[modes[ordinals] == MODES.index(mode)]
        return np.unique(steps[ordinals])

    def has_tensor(self, name: str) -> bool:
        """Return whether a tensor was captured, in full or as statistics."""
        if not self._loaded and self._lookup.begins_with(name):
            return True
        return any(name in layout.places for layout in self.layouts())

    def find(self, name: str, step: int, mode: Mode) -> tuple[Segment, TensorRow] | None:
        """Return the last full tensor of this name, step and mode, unread; None: not found."""
        if not self._loaded and (found := self._lookup.find(name, step, mode)) is not None:
            return found
        modes, steps, _ = self.rows
        if self._ascending:
            low, high = np.searchsorted(steps, step, "left"), np.searchsorted(steps, step, "right")
            ordinals = np.arange(low, high)
        else:
            ordinals = np.flatnonzero(steps == step)
        for ordinal in reversed(ordinals[modes[ordinals] == MODES.index(mode)].tolist()):
            number = bisect_right(self._firsts, ordinal) - 1
            entry = self._segments[number].locate(name, ordinal - self._firsts[number])
            if entry is not None:
                return self._segments[number], entry
        return None
