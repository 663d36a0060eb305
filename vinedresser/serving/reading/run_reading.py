"""Reading the steps of one run directory of a service."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from vinedresser.errors import CorruptData
from vinedresser.objects import Storage
from vinedresser.objects.base import get_or_none
from vinedresser.serving.storing.encoding import IDS, TIMES, decode_ids
from vinedresser.store.index.layout import LayoutPool
from vinedresser.store.problems import Problems
from vinedresser.store.reading.index_reading import IndexReader
from vinedresser.store.segments.segment import Segment

__all__ = ["RequestStep", "RunReading"]


class RequestStep(NamedTuple):
    """One recorded step.

    Attributes:
        segment: number of its segment.
        ids: ids of the requests; bytes [rows].
        tensors: its tensors by name.
    """

    segment: int
    ids: NDArray[np.bytes_]
    tensors: dict[str, NDArray[Any]]


class RunReading:
    """Reads the segments of a run directory in their order.

    Args:
        problems: collects corrupt data.
    """

    def __init__(self, storage: Storage, problems: Problems) -> None:
        self._storage = storage
        self._problems = problems
        # Layouts hardly recur, since segments have different numbers of requests.
        self._reader = IndexReader(storage, 0, LayoutPool(), problems)

    def next_after(self, seq: int) -> int | None:
        """Return the number of the next committed segment; None if there is none."""
        return self._reader.next_after(seq)

    def steps(self, first: int, only: frozenset[str] | None = None) -> Iterator[RequestStep | int]:
        """Yield the steps of the committed segments from a number on.

        Args:
            only: names of tensors to read, besides the ids; None: all.

        Yields:
            Each step, and after the steps of a segment the number of the next one, also after a
            segment that cannot be read.

        Raises:
            StoreError: the storage refused.
        """
        count = 1
        while records := self._reader.records(first, count):
            for record in records:
                if record is not None:
                    yield from self._in(Segment(self._storage, record), only)
                first += 1
                yield first
            count = min(2 * count, 16)

    def _in(self, segment: Segment, only: frozenset[str] | None) -> Iterator[RequestStep]:
        record = segment.record
        names = [name for group in record.tensors for name in group.layout.names]
        rows: list[dict[str, NDArray[Any]]] = [{} for _ in range(len(segment))]
        # One request of an object store, unless only a part is needed.
        whole = get_or_none(self._storage, record.segment) if only is None else None
        for name in dict.fromkeys(names):
            if only is not None and name not in only and name != IDS:
                continue
            for piece in segment.contiguous_rows(name, None):
                key, start, length = segment.rows_span(piece)
                if only is not None:
                    content = get_or_none(self._storage, key, start, length)
                else:
                    content = None if whole is None else whole[start : start + length]
                for row, array in segment.decode_rows(name, piece, content, self._problems):
                    rows[row][name] = array
        for tensors in rows:
            try:
                ids = decode_ids(tensors.pop(IDS, np.zeros(0)))
                if only is None and not _is_column(tensors.get(TIMES), len(ids)):
                    raise CorruptData(f"{TIMES}: not one time for each request")
            except CorruptData as error:
                self._problems.note(f"{self._storage.location}/{record.segment}: {error}")
                continue
            yield RequestStep(record.seq, ids, tensors)


def _is_column(values: NDArray[Any] | None, rows: int) -> bool:
    return values is not None and values.shape == (rows,) and values.dtype == np.float64
