"""What a committed segment holds: its rows, and what lies where in it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from vinedresser.store.index.layout import AliasLayout, ColumnLayout, TensorLayout
from vinedresser.store.records import index_key, segment_key
from vinedresser.store.step_record import MODES

__all__ = [
    "FORMAT",
    "LETTERS",
    "AliasGroup",
    "ColumnGroup",
    "IndexRecord",
    "Rows",
    "TensorGroup",
]

# Of segments, index records and manifests.
FORMAT = 1

# Modes are written as one letter a row: their first ones.
LETTERS = "".join(mode[0] for mode in MODES)
_CODES = np.frombuffer(LETTERS.encode(), np.uint8)


class Rows(NamedTuple):
    """The records of a segment, in the order in which they were captured.

    Attributes:
        modes: uint8, [N]; positions in `MODES`.
        steps: int64, [N].
        times: float64, [N]; seconds since the epoch, to the microsecond.
    """

    modes: NDArray[np.uint8]
    steps: NDArray[np.int64]
    times: NDArray[np.float64]

    def letters(self) -> str:
        """Return the modes as one letter a row, their first."""
        return _CODES[self.modes].tobytes().decode()


class ColumnGroup(NamedTuple):
    """One matrix of scalars or statistics in a segment.

    Attributes:
        layout: its axes.
        rows: int64, [n]; the segment's rows at which it was captured, ascending; None for all.
        offset: where it begins, in bytes from the start of the file.
        checksum: CRC32C of its bytes.
    """

    layout: ColumnLayout
    rows: NDArray[np.int64] | None
    offset: int
    checksum: int


class TensorGroup(NamedTuple):
    """Tensors of one element type, captured at the same rows.

    Attributes:
        layout: which, and of what shapes.
        rows: int64, [n]; the segment's rows at which they were captured, ascending; None for all.
        offset: where the first begins, in bytes from the start of the file.
        checksums: uint32, [tensors, n]; CRC32C of each tensor at each row.
    """

    layout: TensorLayout
    rows: NDArray[np.int64] | None
    offset: int
    checksums: NDArray[np.uint32]


class AliasGroup(NamedTuple):
    """Names that had the elements of stored tensors, at the same rows.

    Attributes:
        layout: which, and of which tensors.
        rows: int64, [n]; the segment's rows at which they had, ascending; None for all.
    """

    layout: AliasLayout
    rows: NDArray[np.int64] | None


@dataclass(frozen=True, eq=False)
class IndexRecord:
    """What a committed segment holds.

    Attributes:
        rank: the process that wrote it.
        seq: its number, from 0 without a gap.
        size: bytes of the segment file.
        rows: its records.
        columns: its scalars and statistics.
        tensors: its tensors.
        aliases: further names of these tensors.
        dropped: records that were lost between the segment before and this one.
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
        """All groups by whose names tensors can be had: first those that are stored."""
        return (*self.tensors, *self.aliases)

    @property
    def key(self) -> str:
        """Where the record lies."""
        return index_key(self.rank, self.seq)

    @property
    def segment(self) -> str:
        """Where the segment lies."""
        return segment_key(self.rank, self.seq)
