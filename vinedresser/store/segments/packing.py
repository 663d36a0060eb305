"""From step records to a segment: an immutable safetensors file, columnar along the steps.

    8 bytes   length of the header, little-endian
    header    JSON, padded with spaces to a multiple of 8
    data      float64 matrices of scalars and statistics, then the tensors, wide types first

A tensor is one entry of shape [rows, *shape], where rows are the records of the segment at which it
was captured. Any safetensors reader opens the file, and `__metadata__` tells it what the rows are
(`segment_header`). Checksums are in the index record.

Nothing is copied but scalars: the parts of the file are views of the tensors' own memory. What a
record has under several names is stored under the first of them; the others are its aliases.
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
from vinedresser.store.dtypes import ITEM_BYTES
from vinedresser.store.index.index_record import (
    AliasGroup,
    ColumnGroup,
    IndexRecord,
    Rows,
    TensorGroup,
)
from vinedresser.store.index.layout import AliasLayout, ColumnLayout, TensorLayout
from vinedresser.store.records import segment_key
from vinedresser.store.segments.header import SegmentHeader
from vinedresser.store.step_record import MODES, HostTensor, StepRecord
from vinedresser.store.storage.base import Buffer

__all__ = ["Packed", "pack"]

_Where = tuple[int, ...]
# One tensor, scalar or set of statistics along the rows: where it is, and what it is there.
_Along = tuple[list[int], list[Any]]


class _Matrix(NamedTuple):
    """Scalars or statistics with the same rows, row by row."""

    layout: ColumnLayout
    rows: _Where
    data: bytes


class _Stack(NamedTuple):
    """Tensors of one type with the same rows; the bytes of each tensor at each row."""

    layout: TensorLayout
    rows: _Where
    data: list[list[Buffer]]


class _Aliases(NamedTuple):
    """Further names of tensors, at the same rows."""

    layout: AliasLayout
    rows: _Where


class _Gathered(NamedTuple):
    """All that records hold, as it will lie in the segment."""

    matrices: list[_Matrix]
    stacks: list[_Stack]
    aliases: list[_Aliases]


class Packed:
    """A segment that is ready to be stored; made by `pack`.

    Args:
        rank: of the writing process.
        seq: the segment's number.
        rows: its records.
        gathered: what they hold.
    """

    def __init__(self, rank: int, seq: int, rows: Rows, gathered: _Gathered) -> None:
        self._place = (rank, seq)
        self._rows = rows
        self._matrices, self._stacks, self._aliases = gathered
        self._checksums: list[int] = []
        taken = {name for stack in self._stacks for name in stack.layout.names}
        taken |= {name for group in self._aliases for name in group.layout.names}
        header = SegmentHeader(rows, taken)
        for matrix in self._matrices:
            header.add_columns(matrix.layout, matrix.rows)
        for stack in self._stacks:
            header.add_tensors(stack.layout, stack.rows)
        for group in self._aliases:
            header.add_aliases(group.layout, group.rows)
        self._header = header.encode(rank, seq)

    @property
    def key(self) -> str:
        """Where the segment is to lie."""
        return segment_key(*self._place)

    def parts(self) -> Iterator[Buffer]:
        """Yield the file part by part.

        The checksum of each is taken just before, so that memory is read once for both: what was
        read for the checksum is in the processor's cache when it is written.
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
        """Return the index record that commits the segment, once all its parts were drawn.

        Args:
            dropped: records lost since the segment before.
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
        """Return the rows as an array, or None when they are all of the segment."""
        return None if len(rows) == len(self._rows.steps) else np.array(rows, np.int64)


def pack(records: Sequence[StepRecord], *, rank: int, seq: int) -> Packed:
    """Pack records into one segment.

    Args:
        records: at least one, in the order in which they were captured.
        rank: of the writing process.
        seq: the segment's number.

    Raises:
        CorruptData: a tensor's data does not have the bytes that its type and shape call for.
        TypeError, ValueError: a scalar is not a number.
    """
    rows = Rows(
        np.array([MODES.index(record.mode) for record in records], np.uint8),
        np.array([record.step for record in records], np.int64),
        np.array([record.time for record in records], np.float64),
    )
    return Packed(rank, seq, rows, _Gathered(_matrices(records), *_tensors(records)))


def _tensors(records: Sequence[StepRecord]) -> tuple[list[_Stack], list[_Aliases]]:
    """Gather the tensors, each once a record, and their further names."""
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
    """Put names with the same rows together."""
    groups = defaultdict(list)
    for pair, rows in found.items():
        groups[tuple(rows)].append(pair)
    aliases = []
    for where, pairs in groups.items():
        names, targets = zip(*pairs, strict=True)
        aliases.append(_Aliases(AliasLayout(names, targets), where))
    return aliases


def _stacks(found: dict[tuple[str, str, tuple[int, ...]], _Along]) -> list[_Stack]:
    """Put tensors of one type together; wide types first, so that every entry is aligned to its."""
    groups = defaultdict(list)
    for (name, dtype, shape), (rows, parts) in found.items():
        groups[dtype, tuple(rows)].append((name, shape, parts))
    stacks = []
    for (dtype, where), members in groups.items():
        names, shapes, data = zip(*members, strict=True)
        stacks.append(_Stack(TensorLayout(dtype, names, shapes), where, list(data)))
    return sorted(stacks, key=lambda stack: -ITEM_BYTES[stack.layout.dtype])


def _bytes_of(name: str, tensor: HostTensor, record: StepRecord) -> Buffer:
    """Return a tensor's bytes as they lie.

    Raises:
        CorruptData: they are not as many as its type and shape call for.
    """
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
    # Numpy lends no buffer of bfloat16 and the like, but it does of their bytes.
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
        # Gathered name by name, kept row by row: a step is read more often than a name.
        data = np.array(columns, np.float64).swapaxes(0, 1).tobytes()
        matrices.append(_Matrix(ColumnLayout(names, reductions), where, data))
    return matrices
