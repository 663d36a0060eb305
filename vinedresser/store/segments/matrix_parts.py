"""Reading the scalars and statistics of a segment step by step, in bounded memory."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from vinedresser.store.index.index_record import ColumnGroup
from vinedresser.store.segments.segment import Segment

# Bytes of a matrix kept in memory, unless a single row is larger. Not fewer, because on an object
# store each part costs a round trip.
_PART = 1 << 20


class _Part(NamedTuple):
    """Some consecutive rows of a matrix.

    Attributes:
        first: position of the first row.
        rows: float64 [rows, names(, reductions)].
    """

    first: int
    rows: NDArray[np.float64]


class MatrixParts:
    """Rows of the matrices of one segment; one part of each matrix is kept in memory.

    The segments of a writer that falls behind grow up to 32 MiB, too much to keep for a reader that
    needs one step at a time. A large matrix is therefore verified in chunks before its first row is
    returned, and then read again part by part.
    """

    def __init__(self, segment: Segment) -> None:
        self._segment = segment
        # By position of the group.
        self._parts: dict[int, _Part] = {}

    def row(self, number: int, place: int) -> NDArray[np.float64]:
        """Return a row of a matrix: float64 [names(, reductions)].

        Args:
            number: position of the group in the columns of the segment.
            place: position of the row in the rows of the group.

        Raises:
            CorruptData: the file is missing or truncated, or its bytes do not match their checksum.
        """
        part = self._parts.get(number)
        if part is None or not part.first <= place < part.first + len(part.rows):
            part = self._parts[number] = self._read(number, place, checked=part is not None)
        row: NDArray[np.float64] = part.rows[place - part.first]
        return row

    def _read(self, number: int, place: int, *, checked: bool) -> _Part:
        """Read the part of a matrix that contains a row."""
        group: ColumnGroup = self._segment.record.columns[number]
        length, size = self._segment.matrix_span(group).length, group.layout.row_bytes
        if length <= _PART:
            return _Part(0, self._segment.matrix(group))
        if not checked:
            self._segment.check_matrix(group, _PART)
        most = max(1, _PART // size)
        first = place - place % most
        count = min(most, length // size - first)
        return _Part(first, self._segment.matrix_rows(group, first, count))
