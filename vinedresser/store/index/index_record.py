"""The contents of a committed segment: its rows, and the position of its data."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from vinedresser.store.index.layout import AliasLayout, ColumnLayout, TensorLayout
from vinedresser.store.records import index_key, segment_key
from vinedresser.store.step_record import MODES

__all__ = ["FORMAT", "LETTERS", "AliasGroup", "ColumnGroup", "IndexRecord", "Rows", "TensorGroup"]

# Format version of segments, index records and manifests.
FORMAT = 1

# Modes are stored as their first letters, one per row.
LETTERS = "".join(mode[0] for mode in MODES)
_CODES = np.frombuffer(LETTERS.encode(), np.uint8)


class Rows(NamedTuple):
    """The records of a segment, in capture order.

    Attributes:
        modes: uint8 [N]; positions in `MODES`.
        steps: int64 [N].
        times: float64 [N]; seconds since the epoch, to the microsecond.
    """

    modes: NDArray[np.uint8]
    steps: NDArray[np.int64]
    times: NDArray[np.float64]

    def letters(self) -> str:
        """Return the first letters of the modes, one per row."""
        return _CODES[self.modes].tobytes().decode()


class ColumnGroup(NamedTuple):
    """One matrix of scalars or statistics in a segment.

    Attributes:
        layout: its axes.
        rows: rows of the segment at which it was captured; int64 [n], ascending; None: all.
        offset: its offset in the file, in bytes.
        checksum: CRC32C of its bytes.
    """

    layout: ColumnLayout
    rows: NDArray[np.int64] | None
    offset: int
    checksum: int


class TensorGroup(NamedTuple):
    """Tensors of one dtype, captured at the same rows.

    Attributes:
        layout: their names and shapes.
        rows: rows of the segment at which they were captured; int64 [n], ascending; None: all.
        offset: offset of the first tensor in the file, in bytes.
        checksums: CRC32C of each tensor at each row; uint32 [tensors, n].
    """

    layout: TensorLayout
    rows: NDArray[np.int64] | None
    offset: int
    checksums: NDArray[np.uint32]


class AliasGroup(NamedTuple):
    """Aliases of stored tensors at the same rows.

    Attributes:
        rows: rows of the segment at which they apply; int64 [n], ascending; None: all.
    """

    layout: AliasLayout
    rows: NDArray[np.int64] | None


@dataclass(frozen=True, eq=False)
class IndexRecord:
    """The contents of a committed segment.

    Attributes:
        rank: rank of the process that wrote it.
        seq: its number, from 0 without gaps.
        size: size of the segment file in bytes.
        columns: its scalars and statistics.
        aliases: aliases of these tensors.
        dropped: number of records lost since the previous segment.
    """

    rank: int
    seq: int
    size: int
    rows: Rows
    columns: tuple[ColumnGroup, ...]
    tensors: tuple[TensorGroup, ...]
    aliases: tuple[AliasGroup, ...] = ()
    dropped: int = 0

    @property
    def named(self) -> tuple[TensorGroup | AliasGroup, ...]:
        """All groups that name tensors: stored tensors first, then aliases."""
        return (*self.tensors, *self.aliases)

    @property
    def key(self) -> str:
        """The key of the record."""
        return index_key(self.rank, self.seq)

    @property
    def segment(self) -> str:
        """The key of the segment."""
        return segment_key(self.rank, self.seq)
