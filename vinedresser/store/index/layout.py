"""What lies where in a segment, as far as it is the same in segment after segment.

A run has few layouts and many segments, so they are kept once (`LayoutPool`) and a segment holds
little more than its rows, its checksums and references to them.
"""

from __future__ import annotations

from functools import cached_property
from itertools import accumulate
from math import prod
from typing import NamedTuple

from vinedresser.store.dtypes import ITEM_BYTES

__all__ = ["AliasLayout", "ColumnLayout", "LayoutPool", "TensorLayout"]


class TensorLayout:
    """Tensors of one element type that were captured at the same rows.

    Each tensor is one block of shape [rows, *shape]; the blocks follow each other without a gap.

    Args:
        dtype: safetensors' name of the element type.
        names: the tensors, in the order of their blocks.
        shapes: their shapes, without the axis of the rows.

    Attributes:
        row_bytes: for each tensor, the bytes of one row.
        starts: for each tensor, the bytes of one row of all blocks before its own; times the
            number of rows, that is where its block begins.
    """

    def __init__(
        self, dtype: str, names: tuple[str, ...], shapes: tuple[tuple[int, ...], ...]
    ) -> None:
        self.dtype = dtype
        self.names = names
        self.shapes = shapes
        self.row_bytes = [ITEM_BYTES[dtype] * prod(shape) for shape in shapes]
        self.starts = [0, *accumulate(self.row_bytes)][:-1]

    @cached_property
    def places(self) -> dict[str, int]:
        """The position of each name."""
        return {name: place for place, name in enumerate(self.names)}


class ColumnLayout:
    """Scalars, or statistics of tensors, that were captured at the same rows.

    They form one float64 matrix of shape [rows, names, reductions], or [rows, names] for scalars.

    Args:
        names: of the scalars or tensors, the second axis.
        reductions: names of the statistics, the third axis; None for scalars.

    Attributes:
        row_bytes: of one row of the matrix.
    """

    def __init__(self, names: tuple[str, ...], reductions: tuple[str, ...] | None) -> None:
        self.names = names
        self.reductions = reductions
        self.row_bytes = 8 * len(names) * (1 if reductions is None else len(reductions))

    @cached_property
    def places(self) -> dict[str, int]:
        """The position of each name."""
        return {name: place for place, name in enumerate(self.names)}

    def shape(self, rows: int) -> tuple[int, ...]:
        """Return the shape of the matrix."""
        width = (len(self.names),)
        return (rows, *width) if self.reductions is None else (rows, *width, len(self.reductions))


class AliasLayout:
    """Names that at the same rows had the very elements of other tensors, which are stored.

    Args:
        names: the names.
        targets: for each, the tensor that is stored.
    """

    def __init__(self, names: tuple[str, ...], targets: tuple[str, ...]) -> None:
        self.names = names
        self.targets = targets

    @cached_property
    def places(self) -> dict[str, int]:
        """The position of each name."""
        return {name: place for place, name in enumerate(self.names)}


class _TensorKey(NamedTuple):
    dtype: str
    names: tuple[str, ...]
    shapes: tuple[tuple[int, ...], ...]


class _ColumnKey(NamedTuple):
    names: tuple[str, ...]
    reductions: tuple[str, ...] | None


class _AliasKey(NamedTuple):
    names: tuple[str, ...]
    targets: tuple[str, ...]


class LayoutPool:
    """Gives the same layout object for the same content."""

    def __init__(self) -> None:
        self._tensors: dict[_TensorKey, TensorLayout] = {}
        self._columns: dict[_ColumnKey, ColumnLayout] = {}
        self._aliases: dict[_AliasKey, AliasLayout] = {}

    def tensors(
        self, dtype: str, names: tuple[str, ...], shapes: tuple[tuple[int, ...], ...]
    ) -> TensorLayout:
        """Return the layout of such tensors."""
        key = _TensorKey(dtype, names, shapes)
        if key not in self._tensors:
            self._tensors[key] = TensorLayout(*key)
        return self._tensors[key]

    def columns(self, names: tuple[str, ...], reductions: tuple[str, ...] | None) -> ColumnLayout:
        """Return the layout of such columns."""
        key = _ColumnKey(names, reductions)
        if key not in self._columns:
            self._columns[key] = ColumnLayout(*key)
        return self._columns[key]

    def aliases(self, names: tuple[str, ...], targets: tuple[str, ...]) -> AliasLayout:
        """Return the layout of such aliases."""
        key = _AliasKey(names, targets)
        if key not in self._aliases:
            self._aliases[key] = AliasLayout(*key)
        return self._aliases[key]
