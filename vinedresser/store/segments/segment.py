"""Reading from a committed segment, checksums included."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
from fastcrc import crc32
from numpy.typing import NDArray

from vinedresser.errors import CorruptData, KeyMissing
from vinedresser.store.dtypes import numpy_dtype
from vinedresser.store.index.index_record import AliasGroup, ColumnGroup, IndexRecord, TensorGroup
from vinedresser.store.problems import Problems
from vinedresser.store.step_record import MODES, Mode
from vinedresser.store.storage import Span, Storage

__all__ = ["TensorRows", "ContiguousRows", "Segment", "TensorRow", "row_position"]


# Bytes of a tensor's rows that are read at once, unless a single row has more.
_AT_ONCE = 4 << 20


class TensorRow(NamedTuple):
    """Where the elements lie that a tensor had at one row.

    Attributes:
        group: the group in which they are stored.
        which: the place of the stored tensor in the group's layout.
        place: the row's place among the rows of the group.
    """

    group: TensorGroup
    which: int
    place: int


class TensorRows(NamedTuple):
    """Where the elements lie that a tensor had at several rows.

    Attributes:
        group: the group in which they are stored.
        which: the place of the stored tensor in the group's layout.
        rows: int64, [n]; rows of the segment, ascending.
    """

    group: TensorGroup
    which: int
    rows: NDArray[np.int64]


class ContiguousRows(NamedTuple):
    """Rows of a tensor that follow each other in the file, as many as are read at a time.

    Attributes:
        group: the group in which its elements are stored.
        which: the place of the stored tensor in the group's layout.
        rows: int64, [n]; rows of the segment, ascending.
        places: int64, [n]; the places of these rows among the rows of the group.
    """

    group: TensorGroup
    which: int
    rows: NDArray[np.int64]
    places: NDArray[np.int64]


def row_position(group: ColumnGroup | TensorGroup | AliasGroup, row: int) -> int | None:
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

    def rows_of(self, group: ColumnGroup | TensorGroup | AliasGroup) -> NDArray[np.int64]:
        """Return the rows of a group; int64, [n]."""
        return np.arange(len(self)) if group.rows is None else group.rows

    def matrix_span(self, group: ColumnGroup) -> Span:
        """Return where scalars or statistics lie."""
        rows = len(self) if group.rows is None else len(group.rows)
        return Span(self.record.segment, group.offset, group.layout.row_bytes * rows)

    def matrix(self, group: ColumnGroup) -> NDArray[np.float64]:
        """Read scalars or statistics: float64, [rows of the group, names(, reductions)].

        Raises:
            CorruptData: the file is missing or truncated, or its bytes do not match their checksum.
        """
        return self.decode_matrix(group, self._read(self.matrix_span(group)))

    def decode_matrix(self, group: ColumnGroup, content: bytes | None) -> NDArray[np.float64]:
        """Return scalars or statistics from what was read of them; see `matrix`.

        Args:
            group: which.
            content: what lies in their span; None where the segment is missing.

        Raises:
            CorruptData: that is missing or truncated, or does not match its checksum.
        """
        layout = group.layout
        rows = len(self) if group.rows is None else len(group.rows)
        what = self._columns(group)
        whole = self._present(content, what)
        checked = self._checked(whole, layout.row_bytes * rows, group.checksum, what)
        return np.frombuffer(checked, np.float64).reshape(layout.shape(rows))

    def check_matrix(self, group: ColumnGroup, at_once: int) -> None:
        """Check scalars or statistics as `matrix` does, and keep none of it.

        Args:
            group: which.
            at_once: bytes that are read at a time.

        Raises:
            CorruptData: see `matrix`.
        """
        key, start, length = self.matrix_span(group)
        checksum, got = 0, 0
        while got < length:
            part = self._present(
                self._read(Span(key, start + got, min(at_once, length - got))), self._columns(group)
            )
            if not part:
                break
            checksum = crc32.iscsi(part, checksum)
            got += len(part)
        self._compare(got == length, checksum == group.checksum, self._columns(group))

    def matrix_rows(self, group: ColumnGroup, first: int, count: int) -> NDArray[np.float64]:
        """Read rows of a matrix that was checked: float64, [count, names(, reductions)].

        Args:
            group: which.
            first: the first of them among the rows of the group.
            count: how many.

        Raises:
            CorruptData: the file is missing or truncated.
        """
        key, start, _ = self.matrix_span(group)
        layout = group.layout
        span = Span(key, start + layout.row_bytes * first, layout.row_bytes * count)
        content = self._present(self._read(span), self._columns(group))
        self._compare(len(content) == span.length, True, self._columns(group))
        return np.frombuffer(content, np.float64).reshape(layout.shape(count))

    def has(self, name: str) -> bool:
        """Say whether a tensor was captured in full, at any row."""
        return any(name in group.layout.places for group in self.record.named)

    def locate(self, name: str, row: int) -> TensorRow | None:
        """Return where a tensor lies that was captured at a row; None: it was not."""
        entry = self._stored(name, row)
        for alias in self.record.aliases if entry is None else ():
            which = alias.layout.places.get(name)
            if which is not None and row_position(alias, row) is not None:
                entry = self._stored(alias.layout.targets[which], row)
        return entry

    def find(self, name: str, step: int, mode: Mode) -> TensorRow | None:
        """Return where a tensor lies at the last row of a step that has it; None: there is none."""
        modes, steps, _ = self.record.rows
        rows = np.flatnonzero((steps == step) & (modes == MODES.index(mode)))
        entries = (self.locate(name, int(row)) for row in rows[::-1])
        return next((entry for entry in entries if entry is not None), None)

    def tensor_rows(self, name: str) -> Iterator[TensorRows]:
        """Yield where a tensor lies, at all rows at which it was captured."""
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
        """Return what of a block was captured in a mode."""
        right = self.record.rows.modes[block.rows] == MODES.index(mode)
        return block._replace(rows=block.rows[right])

    def tensor(self, name: str, entry: TensorRow) -> NDArray[Any]:
        """Read a full tensor; read-only.

        Args:
            name: what it is called, for messages.
            entry: where it lies.

        Raises:
            CorruptData: the file is missing or truncated, or its bytes do not match their checksum.
        """
        group, which, place = entry
        row = place if group.rows is None else int(group.rows[place])
        size = group.layout.row_bytes[which]
        start = self._start(group, which) + size * place
        what = self._said(name, row)
        content = self._present(self._read(Span(self.record.segment, start, size)), what)
        return self._array(content, entry, what)

    def contiguous_rows(self, name: str, mode: Mode | None) -> list[ContiguousRows]:
        """Return what to read of a tensor at a time, by the first row of each.

        Args:
            name: of the tensor.
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
        """Return where a piece lies."""
        size = piece.group.layout.row_bytes[piece.which]
        start = self._start(piece.group, piece.which) + size * int(piece.places[0])
        return Span(self.record.segment, start, size * len(piece.places))

    def decode_rows(
        self, name: str, piece: ContiguousRows, content: bytes | None, problems: Problems
    ) -> list[tuple[int, NDArray[Any]]]:
        """Return a tensor at the rows of a piece, from what was read of it.

        What is damaged is left out and noted.

        Args:
            name: what it is called, for messages.
            piece: which rows.
            content: what lies in its span; None where the segment is missing.
            problems: where damage is noted.

        Returns:
            Each row of the segment with the tensor there, which is read-only.
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
        """Return where a tensor lies that is stored at a row under its own name."""
        for group in self.record.tensors:
            which = group.layout.places.get(name)
            place = None if which is None else row_position(group, row)
            if which is not None and place is not None:
                return TensorRow(group, which, place)
        return None

    def _start(self, group: TensorGroup, which: int) -> int:
        """Return where the block of a stored tensor begins in the file."""
        rows = len(self) if group.rows is None else len(group.rows)
        return group.offset + group.layout.starts[which] * rows

    def _said(self, name: str, row: int) -> str:
        modes, steps, _ = self.record.rows
        return f"{name} of {MODES[modes[row]]} step {steps[row]}"

    def _array(self, content: bytes | memoryview, entry: TensorRow, what: str) -> NDArray[Any]:
        """Return what was read of one tensor at one row, checked."""
        layout = entry.group.layout
        checksum = int(entry.group.checksums[entry.which, entry.place])
        checked = self._checked(content, layout.row_bytes[entry.which], checksum, what)
        return np.frombuffer(checked, numpy_dtype(layout.dtype)).reshape(layout.shapes[entry.which])

    def _columns(self, group: ColumnGroup) -> str:
        """Return in words what scalars or statistics are there."""
        names, steps = group.layout.names, self.record.rows.steps
        others = ", ..." if len(names) > 1 else ""
        return f"columns {names[0]}{others} of steps {steps[0]} to {steps[-1]}"

    def _read(self, span: Span) -> bytes | None:
        """Read bytes of the file, fewer where it ends earlier; None where it is missing."""
        try:
            return self._storage.get(*span)
        except KeyMissing:
            return None

    def _present(self, content: bytes | None, what: str) -> bytes:
        if content is None:
            raise CorruptData(
                f"{self._storage.location}/{self.record.segment}: {what} cannot be read: the "
                f"segment is missing, though {self.record.key} commits it"
            )
        return content

    def _checked(
        self, content: bytes | memoryview, length: int, checksum: int, what: str
    ) -> bytes | memoryview:
        whole = len(content) == length
        self._compare(whole, not whole or crc32.iscsi(content) == checksum, what)
        return content

    def _compare(self, whole: bool, right: bool, what: str) -> None:
        """Raise `CorruptData` where something was not read as it was committed.

        Args:
            whole: it has all its bytes.
            right: they are the right ones.
            what: it is, for the message.
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
    """Cut positions into pieces of places that follow each other: first, and behind the last."""
    if not len(places):
        return
    ends = [*(np.flatnonzero(np.diff(places) != 1) + 1).tolist(), len(places)]
    first = 0
    for end in ends:
        while first < end:
            last = min(first + most, end)
            yield first, last
            first = last
