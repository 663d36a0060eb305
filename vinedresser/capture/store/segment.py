"""Reading from a committed segment, checksums included."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from fastcrc import crc32
from numpy.typing import NDArray

from vinedresser.capture.store.dtypes import numpy_dtype
from vinedresser.capture.store.index import ColumnGroup, IndexRecord, TensorGroup
from vinedresser.capture.store.step_record import MODES, Mode
from vinedresser.errors import Damaged, KeyMissing
from vinedresser.infra.storage import Storage

__all__ = ["Segment", "row_place"]


def row_place(group: ColumnGroup | TensorGroup, row: int) -> int | None:
    """Return where a row of the segment is among the rows of a group, None where it is not."""
    if group.rows is None:
        return row
    place = int(np.searchsorted(group.rows, row))
    return place if place < len(group.rows) and group.rows[place] == row else None


class Segment:
    """A committed segment.

    Args:
        storage: where it lies.
        record: what committed it.
    """

    def __init__(self, storage: Storage, record: IndexRecord) -> None:
        self.record = record
        self._storage = storage

    def __len__(self) -> int:
        """Return the number of its records."""
        return len(self.record.rows.steps)

    def matrix(self, group: ColumnGroup) -> NDArray[np.float64]:
        """Read scalars or statistics: float64, [rows of the group, names(, reductions)].

        Raises:
            Damaged: the file is missing or truncated, or its bytes do not match their checksum.
        """
        layout = group.layout
        rows = len(self) if group.rows is None else len(group.rows)
        what = f"columns {layout.names[0]}" + (", ..." if len(layout.names) > 1 else "")
        steps = self.record.rows.steps
        content = self._read(
            group.offset,
            layout.row_bytes * rows,
            group.checksum,
            f"{what} of steps {steps[0]} to {steps[-1]}",
        )
        return np.frombuffer(content, np.float64).reshape(layout.shape(rows))

    def at(self, name: str, row: int) -> tuple[TensorGroup, int] | None:
        """Return the group that has a full tensor at a row, and the row's place in it."""
        for group in self.groups_of(name):
            place = row_place(group, row)
            if place is not None:
                return group, place
        return None

    def find(self, name: str, step: int, mode: Mode) -> tuple[TensorGroup, int] | None:
        """Return the group that has a full tensor at the last row of a step, and its place."""
        modes, steps, _ = self.record.rows
        rows = np.flatnonzero((steps == step) & (modes == MODES.index(mode)))
        places = (self.at(name, int(row)) for row in rows[::-1])
        return next((place for place in places if place is not None), None)

    def groups_of(self, name: str) -> Iterator[TensorGroup]:
        """Yield the groups that have a full tensor of this name, at some row."""
        return (group for group in self.record.tensors if name in group.layout.places)

    def tensor(self, group: TensorGroup, name: str, place: int) -> NDArray[Any]:
        """Read a full tensor at a place among the rows of its group; read-only.

        Raises:
            Damaged: the file is missing or truncated, or its bytes do not match their checksum.
        """
        layout = group.layout
        which = layout.places[name]
        row = place if group.rows is None else int(group.rows[place])
        rows = len(self) if group.rows is None else len(group.rows)
        size = layout.row_bytes[which]
        modes, steps, _ = self.record.rows
        content = self._read(
            group.offset + layout.starts[which] * rows + size * place,
            size,
            int(group.checksums[which, place]),
            f"{name} of {MODES[modes[row]]} step {steps[row]}",
        )
        return np.frombuffer(content, numpy_dtype(layout.dtype)).reshape(layout.shapes[which])

    def _read(self, start: int, length: int, checksum: int, what: str) -> bytes:
        key = self.record.segment
        try:
            content = self._storage.get(key, start, length)
        except KeyMissing as error:
            raise Damaged(
                f"{self._storage.location}/{key}: {what} cannot be read: the segment is missing, "
                f"though {self.record.key} commits it"
            ) from error
        if len(content) != length:
            raise Damaged(
                f"{self._storage.location}/{key}: {what} cannot be read: the file is truncated, "
                f"{self.record.size} bytes were committed"
            )
        if crc32.iscsi(content) != checksum:
            raise Damaged(
                f"{self._storage.location}/{key}: {what}: the bytes do not match their checksum"
            )
        return content
