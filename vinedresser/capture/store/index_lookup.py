"""Finding one step in a long run without reading all of its index."""

from __future__ import annotations

from vinedresser.capture.store.index import TensorGroup
from vinedresser.capture.store.index_reading import listed_seqs, read_index
from vinedresser.capture.store.layout import LayoutPool
from vinedresser.capture.store.problems import Problems
from vinedresser.capture.store.segment import Segment
from vinedresser.capture.store.step_record import Mode
from vinedresser.errors import KeyMissing
from vinedresser.infra.storage import Storage

__all__ = ["IndexLookup"]


class IndexLookup:
    """Bisects the index records of one rank, whose steps never go back from record to record.

    What it finds is right; what it does not find may be there all the same: a hook may have counted
    backwards, a record may be damaged, or newer than the listing.

    Args:
        storage: the run's.
        rank: whose records.
        pool: gives the layouts.
        problems: where damage is noted.
    """

    def __init__(self, storage: Storage, rank: int, pool: LayoutPool, problems: Problems) -> None:
        self._storage = storage
        self._rank = rank
        self._pool = pool
        self._problems = problems
        self._seqs: list[int] | None = None
        self._segments: dict[int, Segment | None] = {}

    def begins_with(self, name: str) -> bool:
        """Say whether the first segment has a tensor of this name, or statistics of it."""
        segment = self._read(0)
        if segment is None:
            return False
        layouts = [group.layout for group in segment.record.columns]
        return any(segment.groups_of(name)) or any(
            name in layout.places for layout in layouts if layout.reductions is not None
        )

    def find(self, name: str, step: int, mode: Mode) -> tuple[Segment, TensorGroup, int] | None:
        """Return where the last full tensor of this name, step and mode lies.

        Returns:
            The segment, the group in it, and the place among the group's rows; None: not found.
        """
        if self._seqs is None:
            self._seqs = listed_seqs(self._storage, self._rank)
        low, high = 0, len(self._seqs)
        while low < high:
            middle = (low + high) // 2
            segment = self._read(self._seqs[middle])
            if segment is None:
                return None
            if segment.record.rows.steps[0] <= step:
                low = middle + 1
            else:
                high = middle
        # All that begin later are out; the step may go back over several that begin with it.
        for seq in reversed(self._seqs[:low]):
            segment = self._read(seq)
            if segment is None or segment.record.rows.steps[-1] < step:
                return None
            found = segment.find(name, step, mode)
            if found is not None:
                return segment, *found
        return None

    def _read(self, seq: int) -> Segment | None:
        if seq not in self._segments:
            try:
                record = read_index(self._storage, self._rank, seq, self._pool, self._problems)
            except KeyMissing:
                return None
            self._segments[seq] = None if record is None else Segment(self._storage, record)
        return self._segments[seq]
