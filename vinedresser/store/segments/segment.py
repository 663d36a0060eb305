"""Reading a committed segment, with verified checksums."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
from fastcrc import crc32
from numpy.typing import NDArray

from vinedresser.errors import CorruptData
from vinedresser.objects import Span, Storage
from vinedresser.objects.base import get_or_none
from vinedresser.store.dtypes import numpy_dtype
from vinedresser.store.index.index_record import AliasGroup, ColumnGroup, IndexRecord, TensorGroup
from vinedresser.store.problems import Problems
from vinedresser.store.step_record import MODES, Mode

__all__ = ["TensorRows", "ContiguousRows", "Segment", "TensorRow", "row_position"]


# Bytes of a tensor's rows that are read at once, unless a single row is larger.
_AT_ONCE = 4 << 20


class TensorRow(NamedTuple):
    """The stored data of a tensor at one row.

    Attributes:
        which: position of the tensor in the group's layout.
        place: position of the row in the rows of the group.
    """

    group: TensorGroup
    which: int
    place: int


class TensorRows(NamedTuple):
    """The stored data of a tensor at several rows.

    Attributes:
        which: position of the tensor in the group's layout.
        rows: rows of the segment; int64 [n], ascending.
    """

    group: TensorGroup
    which: int
    rows: NDArray[np.int64]


class ContiguousRows(NamedTuple):
    """Rows of a tensor that are contiguous in the file and read together.

    Attributes:
        group: the group that stores them.
        which: position of the tensor in the group's layout.
        rows: rows of the segment; int64 [n], ascending.
        places: positions of these rows in the rows of the group; int64 [n].
    """

    group: TensorGroup
    which: int
    rows: NDArray[np.int64]
    places: NDArray[np.int64]


def row_position(group: ColumnGroup | TensorGroup | AliasGroup, row: int) -> int | None:
    """Return the position of a segment's row in the rows of a group; None if it is not there."""
    if group.rows is None:
        return row
    place = int(np.searchsorted(group.rows, row))
    return place if place < len(group.rows) and group.rows[place] == row else None


class Segment:
    """A committed segment.

    Args:
        record: the index record that commits it.
    """

    def __init__(self, storage: Storage, record: IndexRecord) -> None:
        self.record = record
        self._storage = storage

    def __len__(self) -> int:
        """Return the number of its records."""
        return len(self.record.rows.steps)

    def rows_of(self, group: ColumnGroup | TensorGroup | AliasGroup) -> NDArray[np.int64]:
        """Return the rows of a group; int64 [n]."""
        return np.arange(len(self)) if group.rows is None else group.rows

    def matrix_span(self, group: ColumnGroup) -> Span:
        """Return the span of a matrix of scalars or statistics."""
        rows = len(self) if group.rows is None else len(group.rows)
        return Span(self.record.segment, group.offset, group.layout.row_bytes * rows)

    def matrix(self, group: ColumnGroup) -> NDArray[np.float64]:
        """Read scalars, float64 [rows, names], or statistics, float64 [rows, names, reductions].

        Raises:
            CorruptData: the file is missing or truncated, or its bytes do not match their checksum.
            StoreError: the storage refused.
        """
        return self.decode_matrix(group, get_or_none(self._storage, *self.matrix_span(group)))

    def decode_matrix(self, group: ColumnGroup, content: bytes | None) -> NDArray[np.float64]:
        """Decode the content of a matrix's span; see `matrix`.

        Args:
            content: content of its span; None if the segment is missing.

        Raises:
            CorruptData: the content is missing or truncated, or does not match its checksum.
        """
        layout = group.layout
        rows = len(self) if group.rows is None else len(group.rows)
        what = self._columns(group)
        whole = self._present(content, what)
        checked = self._checked(whole, layout.row_bytes * rows, group.checksum, what)
        return np.frombuffer(checked, np.float64).reshape(layout.shape(rows))

    def check_matrix(self, group: ColumnGroup, chunk_bytes: int) -> None:
        """Verify the checksum of a matrix without keeping it in memory.

        Args:
            chunk_bytes: bytes to read at a time.

        Raises:
            CorruptData: see `matrix`.
        """
        key, start, length = self.matrix_span(group)
        checksum, got = 0, 0
        while got < length:
            part = self._present(
                get_or_none(self._storage, key, start + got, min(chunk_bytes, length - got)),
                self._columns(group),
            )
            if not part:
                break
            checksum = crc32.iscsi(part, checksum)
            got += len(part)
        self._compare(got == length, checksum == group.checksum, self._columns(group))

    def matrix_rows(self, group: ColumnGroup, first: int, count: int) -> NDArray[np.float64]:
        """Read some rows of a verified matrix: float64 [count, names(, reductions)].

        Args:
            first: position of the first row in the rows of the group.

        Raises:
            CorruptData: the file is missing or truncated.
        """
        key, start, _ = self.matrix_span(group)
        layout = group.layout
        span = Span(key, start + layout.row_bytes * first, layout.row_bytes * count)
        content = self._present(get_or_none(self._storage, *span), self._columns(group))
        self._compare(len(content) == span.length, True, self._columns(group))
        return np.frombuffer(content, np.float64).reshape(layout.shape(count))

    def has(self, name: str) -> bool:
        """Return whether a tensor was captured in full at any row."""
        return any(name in group.layout.places for group in self.record.named)

    def locate(self, name: str, row: int) -> TensorRow | None:
        """Return the stored data of a tensor at a row; None if it was not captured there."""
        entry = self._stored(name, row)
        for alias in self.record.aliases if entry is None else ():
            which = alias.layout.places.get(name)
            if which is not None and row_position(alias, row) is not None:
                entry = self._stored(alias.layout.targets[which], row)
        return entry

    def find(self, name: str, step: int, mode: Mode) -> TensorRow | None:
        """Return the stored data of a tensor at the last row of a step; None if there is none."""
        modes, steps, _ = self.record.rows
        rows = np.flatnonzero((steps == step) & (modes == MODES.index(mode)))
        entries = (self.locate(name, int(row)) for row in rows[::-1])
        return next((entry for entry in entries if entry is not None), None)

    def tensor_rows(self, name: str) -> Iterator[TensorRows]:
        """Yield the stored data of a tensor, by group."""
        for group in self.record.tensors:
            which = group.layout.places.get(name)
            if which is not None:
                yield TensorRows(group, which, self.rows_of(group))
        for alias in self.record.aliases:
            if name not in alias.layout.places:
                continue
            target = alias.layout.targets[alias.layout.places[name]]
            for group in self.record.tensors:
                which = group.layout.places.get(target)
                if which is not None:
                    rows = np.intersect1d(self.rows_of(alias), self.rows_of(group), True)
                    if len(rows):
                        yield TensorRows(group, which, rows)

    def in_mode(self, block: TensorRows, mode: Mode) -> TensorRows:
        """Return the rows of a block that were captured in a mode."""
        right = self.record.rows.modes[block.rows] == MODES.index(mode)
        return block._replace(rows=block.rows[right])

    def tensor(self, name: str, entry: TensorRow) -> NDArray[Any]:
        """Read a full tensor: read-only, of its captured shape and dtype.

        Args:
            name: name of the tensor, for messages.
            entry: its stored data.

        Raises:
            CorruptData: the file is missing or truncated, or its bytes do not match their checksum.
            StoreError: the storage refused.
        """
        group, which, place = entry
        row = place if group.rows is None else int(group.rows[place])
        size = group.layout.row_bytes[which]
        start = self._start(group, which) + size * place
        what = self._said(name, row)
        content = self._present(get_or_none(self._storage, self.record.segment, start, size), what)
        return self._array(content, entry, what)

    def contiguous_rows(self, name: str, mode: Mode | None) -> list[ContiguousRows]:
        """Return the contiguous rows of a tensor, sorted by the first row of each.

        Args:
            mode: only rows of this mode; None: all.
        """
        found = []
        for block in self.tensor_rows(name):
            group, which, rows = block if mode is None else self.in_mode(block, mode)
            places = rows if group.rows is None else np.searchsorted(group.rows, rows)
            most = max(1, _AT_ONCE // max(1, group.layout.row_bytes[which]))
            for first, last in _runs(places, most):
                found.append(ContiguousRows(group, which, rows[first:last], places[first:last]))
        return sorted(found, key=lambda piece: int(piece.rows[0]))

    def rows_span(self, piece: ContiguousRows) -> Span:
        """Return the span of contiguous rows."""
        size = piece.group.layout.row_bytes[piece.which]
        start = self._start(piece.group, piece.which) + size * int(piece.places[0])
        return Span(self.record.segment, start, size * len(piece.places))

    def decode_rows(
        self, name: str, piece: ContiguousRows, content: bytes | None, problems: Problems
    ) -> list[tuple[int, NDArray[Any]]]:
        """Decode the content of a span of contiguous rows.

        Corrupt rows are skipped and added to the problems.

        Args:
            name: name of the tensor, for messages.
            content: content of their span; None if the segment is missing.
            problems: collects corrupt data.

        Returns:
            Pairs of a row of the segment and the tensor at that row: read-only, of its captured
            shape and dtype.
        """
        size = piece.group.layout.row_bytes[piece.which]
        found = []
        try:
            whole = memoryview(self._present(content, self._said(name, int(piece.rows[0]))))
        except CorruptData as error:
            problems.note(str(error))
            return []
        for number, (row, place) in enumerate(
            zip(piece.rows.tolist(), piece.places.tolist(), strict=True)
        ):
            part = whole[size * number : size * (number + 1)]
            try:
                entry = TensorRow(piece.group, piece.which, place)
                found.append((row, self._array(part, entry, self._said(name, row))))
            except CorruptData as error:
                problems.note(str(error))
        return found

    def _stored(self, name: str, row: int) -> TensorRow | None:
        """Return the data of a tensor that is stored at a row under its own name."""
        for group in self.record.tensors:
            which = group.layout.places.get(name)
            place = None if which is None else row_position(group, row)
            if which is not None and place is not None:
                return TensorRow(group, which, place)
        return None

    def _start(self, group: TensorGroup, which: int) -> int:
        """Return the offset of a stored tensor's block in the file."""
        rows = len(self) if group.rows is None else len(group.rows)
        return group.offset + group.layout.starts[which] * rows

    def _said(self, name: str, row: int) -> str:
        modes, steps, _ = self.record.rows
        return f"{name} of {MODES[modes[row]]} step {steps[row]}"

    def _array(self, content: bytes | memoryview, entry: TensorRow, what: str) -> NDArray[Any]:
        """Return one tensor at one row from its content, after verifying the checksum."""
        layout = entry.group.layout
        checksum = int(entry.group.checksums[entry.which, entry.place])
        checked = self._checked(content, layout.row_bytes[entry.which], checksum, what)
        return np.frombuffer(checked, numpy_dtype(layout.dtype)).reshape(layout.shapes[entry.which])

    def _columns(self, group: ColumnGroup) -> str:
        """Return a description of a matrix, for messages."""
        names, steps = group.layout.names, self.record.rows.steps
        others = ", ..." if len(names) > 1 else ""
        return f"columns {names[0]}{others} of steps {steps[0]} to {steps[-1]}"

    def _present(self, content: bytes | None, what: str) -> bytes:
        if content is None:
            raise CorruptData(
                f"{self._storage.location}/{self.record.segment}: {what} cannot be read: the "
                f"segment is missing or not a file although {self.record.key} commits it"
            )
        return content

    def _checked(
        self, content: bytes | memoryview, length: int, checksum: int, what: str
    ) -> bytes | memoryview:
        whole = len(content) == length
        self._compare(whole, not whole or crc32.iscsi(content) == checksum, what)
        return content

    def _compare(self, whole: bool, right: bool, what: str) -> None:
        """Raise `CorruptData` unless the data was read as it was committed.

        Args:
            whole: it has the committed length.
            what: description of the data, for the message.
        """
        where = f"{self._storage.location}/{self.record.segment}"
        if not whole:
            raise CorruptData(
                f"{where}: {what} cannot be read: the file is truncated, {self.record.size} bytes "
                "were committed"
            )
        if not right:
            raise CorruptData(f"{where}: {what}: the bytes do not match their checksum")


def _runs(places: NDArray[np.int64], most: int) -> Iterator[tuple[int, int]]:
    """Yield the bounds (first, end) of runs of consecutive positions, at most ``most`` long."""
    if not len(places):
        return
    ends = [*(np.flatnonzero(np.diff(places) != 1) + 1).tolist(), len(places)]
    first = 0
    for end in ends:
        while first < end:
            last = min(first + most, end)
            yield first, last
            first = last
