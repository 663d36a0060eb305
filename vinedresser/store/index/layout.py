"""Layouts: the parts of a segment's description that recur from segment to segment.

A run has few layouts and many segments, so layouts are shared (`LayoutPool`), and a segment needs
little more memory than its rows, its checksums and references to layouts.
"""

from __future__ import annotations

from functools import cached_property
from itertools import accumulate
from math import prod
from typing import NamedTuple

from vinedresser.store.dtypes import ITEM_BYTES

__all__ = ["AliasLayout", "ColumnLayout", "LayoutPool", "TensorLayout"]


class TensorLayout:
    """Tensors of one dtype, captured at the same rows.

    Each tensor is one block of shape [rows, *shape]; the blocks are contiguous.

    Args:
        dtype: safetensors' name of the dtype.
        names: names of the tensors, in the order of their blocks.
        shapes: their shapes, without the axis of the rows.

    Attributes:
        row_bytes: bytes of one row of each tensor.
        starts: for each tensor, the bytes of one row of all blocks before its own; its block begins
            at this number times the number of rows.
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
    """Scalars, or scalar statistics of tensors, captured at the same rows.

    They form one float64 matrix of shape [rows, names, reductions], or [rows, names] for scalars.

    Args:
        names: names of the scalars or tensors, the second axis.
        reductions: names of the statistics, the third axis; None for scalars.

    Attributes:
        row_bytes: bytes of one row of the matrix.
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
    """Names of tensors that share the memory of stored tensors at the same rows.

    Args:
        names: the names.
        targets: the stored tensor of each.
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
    """Returns the same layout object for equal contents."""

    def __init__(self) -> None:
        self._tensors: dict[_TensorKey, TensorLayout] = {}
        self._columns: dict[_ColumnKey, ColumnLayout] = {}
        self._aliases: dict[_AliasKey, AliasLayout] = {}

    def tensors(
        self, dtype: str, names: tuple[str, ...], shapes: tuple[tuple[int, ...], ...]
    ) -> TensorLayout:
        """Return the `TensorLayout` with these contents."""
        key = _TensorKey(dtype, names, shapes)
        if key not in self._tensors:
            self._tensors[key] = TensorLayout(*key)
        return self._tensors[key]

    def columns(self, names: tuple[str, ...], reductions: tuple[str, ...] | None) -> ColumnLayout:
        """Return the `ColumnLayout` with these contents."""
        key = _ColumnKey(names, reductions)
        if key not in self._columns:
            self._columns[key] = ColumnLayout(*key)
        return self._columns[key]

    def aliases(self, names: tuple[str, ...], targets: tuple[str, ...]) -> AliasLayout:
        """Return the `AliasLayout` with these contents."""
        key = _AliasKey(names, targets)
        if key not in self._aliases:
            self._aliases[key] = AliasLayout(*key)
        return self._aliases[key]
