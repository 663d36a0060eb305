"""Finding one step in a long run without reading its whole index."""

from __future__ import annotations

from itertools import count

from vinedresser.errors import CorruptData
from vinedresser.objects import Storage
from vinedresser.store.index.layout import LayoutPool
from vinedresser.store.problems import Problems
from vinedresser.store.reading.index_reading import IndexReader
from vinedresser.store.records import index_key
from vinedresser.store.segments.segment import Segment, TensorRow
from vinedresser.store.step_record import Mode


class IndexLookup:
    """Searches the index records of one rank by interpolation, assuming that steps never decrease.

    A result is always correct, but a miss is not conclusive: a hook may have counted backwards, or
    a record may be corrupt or missing.

    Args:
        pool: shares equal layouts.
        problems: collects corrupt data.
    """

    def __init__(self, storage: Storage, rank: int, pool: LayoutPool, problems: Problems) -> None:
        self._storage = storage
        self._reader = IndexReader(storage, rank, pool, problems)
        self._segments: dict[int, Segment] = {}

    def begins_with(self, name: str) -> bool:
        """Return whether the first segment has a tensor of this name, or statistics of it."""
        try:
            segment = self._read(0)
        except CorruptData:
            return False
        if segment is None:
            return False
        layouts = [group.layout for group in segment.record.columns]
        return segment.has(name) or any(
            name in layout.places for layout in layouts if layout.reductions is not None
        )

    def find(self, name: str, step: int, mode: Mode) -> tuple[Segment, TensorRow] | None:
        """Return the last full tensor of this name, step and mode, unread; None: not found."""
        try:
            # Later records are out; the step may span several records that begin with it.
            for seq in range(self._last_from(step), -1, -1):
                segment = self._read(seq)
                if segment is None or segment.record.rows.steps[-1] < step:
                    return None
                found = segment.find(name, step, mode)
                if found is not None:
                    return segment, found
        except CorruptData:
            pass
        return None

    def _last_from(self, step: int) -> int:
        """Return the number of the last record that begins at or before a step; -1: none."""
        low, high = -1, None
        for turn in count():
            if high == low + 1:
                break
            # Most steps are evenly spaced; in case they are not, every third try bisects.
            if turn and turn % 3 == 0:
                seq = 2 * low + 2 if high is None else (low + high) // 2
            else:
                seq = self._guess(low, high, step)
            if self._is_beyond(seq, step):
                high = seq
            else:
                low = seq
        return low

    def _guess(self, low: int, high: int | None, step: int) -> int:
        """Return the interpolated number of the record with a step, between two bounds."""
        if low < 0:
            return 0
        last = self._segments[low].record.rows.steps
        first = self._segments[0].record.rows.steps[0]
        behind = last[0] - first if low else last[-1] - first + 1
        pace = max(float(behind) / max(low, 1), 1e-9)
        ahead = max(1, int(min(float(step - last[0]) / pace, 1e9)))
        return low + (ahead if high is None else min(ahead, high - low - 1))

    def _is_beyond(self, seq: int, step: int) -> bool:
        """Return whether a record begins after a step or does not exist yet."""
        segment = self._read(seq)
        return segment is None or bool(segment.record.rows.steps[0] > step)

    def _read(self, seq: int) -> Segment | None:
        """Return a segment; None if it does not exist (yet)."""
        if seq not in self._segments:
            found = self._reader.records(seq, 1)
            if not found and not self._reader.exists(seq + 1):
                return None
            if not found or found[0] is None:
                raise CorruptData(f"{index_key(self._reader.rank, seq)} cannot be read")
            self._segments[seq] = Segment(self._storage, found[0])
        return self._segments[seq]
