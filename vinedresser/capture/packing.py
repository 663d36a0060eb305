"""From step records to a segment: an immutable safetensors file, columnar along the steps.

    8 bytes   length of the header, little-endian
    header    JSON, padded with spaces to a multiple of 8
    data      float64 matrices of scalars and statistics, then the tensors, wide types first

A tensor is one entry of shape [rows, *shape], where rows are the records of the segment at which it
was captured. Any safetensors reader opens the file, and `__metadata__` tells it what the rows are
(`segment_header`). Checksums are in the index record.

Nothing is copied but scalars: the parts of the file are views of the tensors' own memory.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from math import prod
from typing import Any, NamedTuple

import numpy as np
from fastcrc import crc32
from numpy.typing import NDArray

from vinedresser.capture.dtypes import ITEM_BYTES
from vinedresser.capture.index import ColumnGroup, IndexRecord, Rows, TensorGroup
from vinedresser.capture.layout import ColumnLayout, TensorLayout
from vinedresser.capture.segment_header import SegmentHeader
from vinedresser.capture.step_record import MODES, HostTensor, StepRecord
from vinedresser.errors import Damaged
from vinedresser.infra.storage.base import Buffer

__all__ = ["Packed", "pack"]

_Where = tuple[int, ...]
# One tensor, scalar or set of statistics along the rows: where it is, and what it is there.
_Along = tuple[list[int], list[Any]]


class Packed(NamedTuple):
    """A segment that is ready to be stored.

    Attributes:
        parts: the file, in order.
        record: the index record that will commit it.
    """

    parts: list[Buffer]
    record: IndexRecord


class _Matrix(NamedTuple):
    """Scalars or statistics with the same rows, row by row."""

    layout: ColumnLayout
    rows: _Where
    data: bytes

    def group(self, offset: int, all_rows: int) -> ColumnGroup:
        """Return what the index says of it, where it lies at an offset of the file."""
        checksum = crc32.iscsi(self.data)
        return ColumnGroup(self.layout, _some(self.rows, all_rows), offset, checksum)


class _Stack(NamedTuple):
    """Tensors of one type with the same rows; the bytes of each tensor at each row."""

    layout: TensorLayout
    rows: _Where
    data: list[list[Buffer]]

    def group(self, offset: int, all_rows: int) -> TensorGroup:
        """Return what the index says of it, where it lies at an offset of the file."""
        checksums = np.array([[crc32.iscsi(part) for part in one] for one in self.data], np.uint32)
        return TensorGroup(self.layout, _some(self.rows, all_rows), offset, checksums)


def pack(records: Sequence[StepRecord], *, rank: int, seq: int, dropped: int = 0) -> Packed:
    """Pack records into one segment.

    Args:
        records: at least one, in the order in which they were captured.
        rank: of the writing process.
        seq: the segment's number.
        dropped: records lost since the segment before.

    Raises:
        Damaged: a tensor's data does not have the bytes that its type and shape call for.
        TypeError, ValueError: a scalar is not a number.
    """
    rows = Rows(
        np.array([MODES.index(record.mode) for record in records], np.uint8),
        np.array([record.step for record in records], np.int64),
        np.array([record.time for record in records], np.float64),
    )
    matrices = _matrices(records)
    stacks = _stacks(records)
    header = SegmentHeader(rows, {name for stack in stacks for name in stack.layout.names})
    for matrix in matrices:
        header.add_columns(matrix.layout, matrix.rows)
    for stack in stacks:
        header.add_tensors(stack.layout, stack.rows)
    parts: list[Buffer] = [header.encode(rank, seq)]
    offset = len(parts[0])
    columns, tensors = [], []
    for matrix in matrices:
        columns.append(matrix.group(offset, len(records)))
        parts.append(matrix.data)
        offset += len(matrix.data)
    for stack in stacks:
        tensors.append(stack.group(offset, len(records)))
        parts.extend(part for one in stack.data for part in one)
        offset += len(stack.rows) * sum(stack.layout.row_bytes)
    record = IndexRecord(rank, seq, offset, rows, tuple(columns), tuple(tensors), dropped)
    return Packed(parts, record)


def _some(rows: _Where, all_rows: int) -> NDArray[np.int64] | None:
    """Return the rows as an array, or None when they are all of the segment."""
    return None if len(rows) == all_rows else np.array(rows, np.int64)


def _stacks(records: Sequence[StepRecord]) -> list[_Stack]:
    """Gather the tensors; wide types first, so that every entry is aligned to its own type."""
    found: dict[tuple[str, str, tuple[int, ...]], _Along] = {}
    for row, record in enumerate(records):
        for name, tensor in record.tensors.items():
            rows, parts = found.setdefault((name, tensor.dtype, tensor.shape), ([], []))
            rows.append(row)
            parts.append(_bytes_of(name, tensor, record))
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
        Damaged: they are not as many as its type and shape call for.
    """
    size = ITEM_BYTES.get(tensor.dtype)
    data = tensor.data
    if size is None or data.nbytes != size * prod(tensor.shape):
        raise Damaged(
            f"{name} at {record.mode} step {record.step}: {data.nbytes} bytes cannot be "
            f"{tensor.dtype} of shape {list(tensor.shape)}"
        )
    if not data.nbytes:
        return b""
    # Numpy lends no buffer of bfloat16 and the like, but it does of their bytes.
    return data.reshape(-1).view(np.uint8).data


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
