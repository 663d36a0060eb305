"""Packing step records into a segment: an immutable safetensors file, columnar over the steps.

    8 bytes   length of the header, little-endian
    header    JSON, padded with spaces to a multiple of 8
    data      float64 matrices of scalars and statistics, then the tensors, wide dtypes first

A tensor is one entry of shape [rows, *shape], where rows are the records of the segment at which it
was captured. Any safetensors reader can open the file; `__metadata__` describes the rows (see
`header`). Checksums are in the index record.

Only scalars are copied: the parts of the file are views of the tensors' memory. A tensor with
several names in a record is stored under the first; the others are its aliases.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from math import prod
from typing import Any, NamedTuple

import numpy as np
from fastcrc import crc32
from numpy.typing import NDArray

from vinedresser.errors import CorruptData
from vinedresser.objects.base import Buffer
from vinedresser.store.dtypes import ITEM_BYTES
from vinedresser.store.index.document import to_json
from vinedresser.store.index.index_record import (
    FORMAT,
    AliasGroup,
    ColumnGroup,
    IndexRecord,
    Rows,
    TensorGroup,
)
from vinedresser.store.index.layout import AliasLayout, ColumnLayout, TensorLayout
from vinedresser.store.records import segment_key
from vinedresser.store.step_record import MODES, HostTensor, StepRecord

__all__ = ["Packed", "pack"]

_Where = tuple[int, ...]
# One tensor, scalar or set of statistics: its rows, and its value at each.
_Along = tuple[list[int], list[Any]]
_RESERVED = "__metadata__"


class _Matrix(NamedTuple):
    """Scalars or statistics with the same rows; float64 bytes, row by row."""

    layout: ColumnLayout
    rows: _Where
    data: bytes


class _Stack(NamedTuple):
    """Tensors of one dtype with the same rows; the bytes of each tensor at each row."""

    layout: TensorLayout
    rows: _Where
    data: list[list[Buffer]]


class _Aliases(NamedTuple):
    """Aliases of tensors at the same rows."""

    layout: AliasLayout
    rows: _Where


class _Gathered(NamedTuple):
    """The contents of records, in the order of the segment."""

    matrices: list[_Matrix]
    stacks: list[_Stack]
    aliases: list[_Aliases]


class Packed:
    """A segment ready to be stored; created by `pack`.

    Args:
        rank: rank of the writing process.
        seq: number of the segment.
        rows: its records.
        gathered: their contents.
    """

    def __init__(self, rank: int, seq: int, rows: Rows, gathered: _Gathered) -> None:
        self._place = (rank, seq)
        self._rows = rows
        self._matrices, self._stacks, self._aliases = gathered
        self._checksums: list[int] = []
        taken = {name for stack in self._stacks for name in stack.layout.names}
        taken |= {name for group in self._aliases for name in group.layout.names}
        header = _SegmentHeader(rows, taken)
        for matrix in self._matrices:
            header.add_columns(matrix.layout, matrix.rows)
        for stack in self._stacks:
            header.add_tensors(stack.layout, stack.rows)
        for group in self._aliases:
            header.add_aliases(group.layout, group.rows)
        self._header = header.encode(rank, seq)

    @property
    def key(self) -> str:
        """The key of the segment."""
        return segment_key(*self._place)

    def parts(self) -> Iterator[Buffer]:
        """Yield the file part by part.

        The checksum of each part is computed just before, so that the part is still in the
        processor's cache when it is written.
        """
        self._checksums = []
        yield self._header
        for matrix in self._matrices:
            self._checksums.append(crc32.iscsi(matrix.data))
            yield matrix.data
        for stack in self._stacks:
            for one in stack.data:
                for part in one:
                    self._checksums.append(crc32.iscsi(part))
                    yield part

    def record(self, *, dropped: int = 0) -> IndexRecord:
        """Return the index record that commits the segment; call it after drawing all parts.

        Args:
            dropped: number of records lost since the previous segment.
        """
        checksums = iter(self._checksums)
        offset = len(self._header)
        columns, tensors = [], []
        for matrix in self._matrices:
            rows = self._some(matrix.rows)
            columns.append(ColumnGroup(matrix.layout, rows, offset, next(checksums)))
            offset += len(matrix.data)
        for stack in self._stacks:
            shape = (len(stack.layout.names), len(stack.rows))
            sums = np.fromiter(checksums, np.uint32, shape[0] * shape[1]).reshape(shape)
            tensors.append(TensorGroup(stack.layout, self._some(stack.rows), offset, sums))
            offset += len(stack.rows) * sum(stack.layout.row_bytes)
        aliases = (AliasGroup(each.layout, self._some(each.rows)) for each in self._aliases)
        return IndexRecord(
            *self._place,
            offset,
            self._rows,
            tuple(columns),
            tuple(tensors),
            tuple(aliases),
            dropped,
        )

    def _some(self, rows: _Where) -> NDArray[np.int64] | None:
        """Return the rows as int64 [n]; None for all rows of the segment."""
        return None if len(rows) == len(self._rows.steps) else np.array(rows, np.int64)


def pack(records: Sequence[StepRecord], *, rank: int, seq: int) -> Packed:
    """Pack records into one segment.

    Args:
        records: at least one, in capture order.
        rank: rank of the writing process.
        seq: number of the segment.

    Raises:
        CorruptData: the size of a tensor's data does not match its dtype and shape.
        TypeError, ValueError: a scalar is not a number.
    """
    rows = Rows(
        np.array([MODES.index(record.mode) for record in records], np.uint8),
        np.array([record.step for record in records], np.int64),
        np.array([record.time for record in records], np.float64),
    )
    return Packed(rank, seq, rows, _Gathered(_matrices(records), *_tensors(records)))


def _tensors(records: Sequence[StepRecord]) -> tuple[list[_Stack], list[_Aliases]]:
    """Gather the tensors, each once per record, and their aliases."""
    stored: dict[tuple[str, str, tuple[int, ...]], _Along] = {}
    aliases: dict[tuple[str, str], list[int]] = defaultdict(list)
    for row, record in enumerate(records):
        seen: dict[tuple[int, str, tuple[int, ...]], str] = {}
        for name, tensor in record.tensors.items():
            first = seen.setdefault((id(tensor.data), tensor.dtype, tensor.shape), name)
            if first is not name:
                aliases[name, first].append(row)
                continue
            rows, parts = stored.setdefault((name, tensor.dtype, tensor.shape), ([], []))
            rows.append(row)
            parts.append(_bytes_of(name, tensor, record))
    return _stacks(stored), _aliases(aliases)


def _aliases(found: dict[tuple[str, str], list[int]]) -> list[_Aliases]:
    """Group aliases with the same rows."""
    groups = defaultdict(list)
    for pair, rows in found.items():
        groups[tuple(rows)].append(pair)
    aliases = []
    for where, pairs in groups.items():
        names, targets = zip(*pairs, strict=True)
        aliases.append(_Aliases(AliasLayout(names, targets), where))
    return aliases


def _stacks(found: dict[tuple[str, str, tuple[int, ...]], _Along]) -> list[_Stack]:
    """Group tensors of one dtype; wide dtypes first, so that every entry is aligned."""
    groups = defaultdict(list)
    for (name, dtype, shape), (rows, parts) in found.items():
        groups[dtype, tuple(rows)].append((name, shape, parts))
    stacks = []
    for (dtype, where), members in groups.items():
        names, shapes, data = zip(*members, strict=True)
        stacks.append(_Stack(TensorLayout(dtype, names, shapes), where, list(data)))
    return sorted(stacks, key=lambda stack: -ITEM_BYTES[stack.layout.dtype])


def _bytes_of(name: str, tensor: HostTensor, record: StepRecord) -> Buffer:
    """Return the bytes of a tensor without copying them."""
    size = ITEM_BYTES.get(tensor.dtype)
    data = tensor.data
    if size is None or data.nbytes != size * prod(tensor.shape):
        raise CorruptData(
            f"{name} at {record.mode} step {record.step}: {data.nbytes} bytes cannot be "
            f"{tensor.dtype} of shape {list(tensor.shape)}"
        )
    if not data.nbytes:
        return b""
    if not data.dtype.isnative:
        data = data.byteswap()
    # Numpy exports no buffer of bfloat16 and similar dtypes, only of their bytes.
    return np.ascontiguousarray(data).reshape(-1).view(np.uint8).data


def _matrices(records: Sequence[StepRecord]) -> list[_Matrix]:
    """Gather scalars and statistics into matrices, one for each set of rows (and reductions)."""
    found: dict[tuple[str, tuple[str, ...] | None], _Along] = {}
    for row, record in enumerate(records):
        for name, value in record.scalars.items():
            rows, values = found.setdefault((name, None), ([], []))
            rows.append(row)
            values.append(value)
        for name, statistics in record.reductions.items():
            rows, values = found.setdefault((name, tuple(statistics)), ([], []))
            rows.append(row)
            values.append(tuple(statistics.values()))
    groups = defaultdict(list)
    for (name, reductions), (rows, values) in found.items():
        groups[reductions, tuple(rows)].append((name, values))
    matrices = []
    for (reductions, where), members in groups.items():
        names, columns = zip(*members, strict=True)
        # Gathered by name, stored by row: steps are read more often than names.
        data = np.array(columns, np.float64).swapaxes(0, 1).tobytes()
        matrices.append(_Matrix(ColumnLayout(names, reductions), where, data))
    return matrices


class _SegmentHeader:
    """Collects the entries in the order of their data, which follows without gaps.

    Args:
        rows: the records of the segment.
        taken: names of all its tensors, not available for other entries.
    """

    def __init__(self, rows: Rows, taken: set[str]) -> None:
        self._rows = rows
        self._used = taken | {_RESERVED}
        self._entries: dict[str, Any] = {}
        self._columns: list[Any] = []
        self._partial: list[Any] = []
        self._variants: dict[str, str] = {}
        self._aliases: list[Any] = []
        self._offset = 0

    def add_columns(self, layout: ColumnLayout, rows: Sequence[int]) -> None:
        """Add a matrix captured at some rows."""
        entry = self._fresh("columns")
        shape = layout.shape(len(rows))
        self._enter(entry, "F64", shape, layout.row_bytes * len(rows))
        where = None if self._whole(rows) else rows
        self._columns.append([entry, layout.names, layout.reductions, where])

    def add_tensors(self, layout: TensorLayout, rows: Sequence[int]) -> None:
        """Add tensors captured at the same rows."""
        entries = []
        for name, shape, size in zip(layout.names, layout.shapes, layout.row_bytes, strict=True):
            entry = name
            if name in self._entries or name == _RESERVED:
                entry = self._fresh(name)
                self._variants[entry] = name
            self._enter(entry, layout.dtype, (len(rows), *shape), size * len(rows))
            entries.append(entry)
        if not self._whole(rows):
            self._partial.append([rows, entries])

    def add_aliases(self, layout: AliasLayout, rows: Sequence[int]) -> None:
        """Add aliases of tensors at the same rows."""
        where = None if self._whole(rows) else rows
        self._aliases.append([where, dict(zip(layout.names, layout.targets, strict=True))])

    def encode(self, rank: int, seq: int) -> bytes:
        """Return the header with its length, padded so that the data is aligned to 8 bytes."""
        contents = {
            "rows": [self._rows.letters(), self._rows.steps.tolist()],
            "columns": self._columns,
            "partial": self._partial,
            "variants": self._variants,
            "aliases": self._aliases,
        }
        metadata = {"format": f"vinedresser.segment.{FORMAT}", "rank": str(rank), "seq": str(seq)}
        metadata |= {key: to_json(value) for key, value in contents.items() if value}
        header = to_json({_RESERVED: metadata, **self._entries}).encode()
        header += b" " * (-len(header) % 8)
        return len(header).to_bytes(8, "little") + header

    def _enter(self, entry: str, dtype: str, shape: Sequence[int], size: int) -> None:
        span = [self._offset, self._offset + size]
        self._entries[entry] = {"dtype": dtype, "shape": shape, "data_offsets": span}
        self._offset += size

    def _whole(self, rows: Sequence[int]) -> bool:
        return len(rows) == len(self._rows.steps)

    def _fresh(self, name: str) -> str:
        """Return a name that no tensor or entry has."""
        number = 1
        while f"{name}#{number}" in self._used:
            number += 1
        self._used.add(f"{name}#{number}")
        return f"{name}#{number}"
