"""Layouts: the parts of a segment's description that recur from segment to segment.

A run has few layouts and many segments, so layouts are shared (`LayoutPool`), and a segment needs
little more memory than its rows, its checksums and references to layouts.
"""

from __future__ import annotations

from functools import cache, cached_property
from itertools import accumulate
from math import prod

from vinedresser.store.dtypes import ITEM_BYTES

__all__ = ["AliasLayout", "ColumnLayout", "LayoutPool", "TensorLayout"]


class _Layout:
    names: tuple[str, ...]

    @cached_property
    def places(self) -> dict[str, int]:
        """The position of each name."""
        return {name: place for place, name in enumerate(self.names)}


class TensorLayout(_Layout):
    """Tensors of one dtype, captured at the same rows.

    Each tensor is one block of shape [rows, *shape]; the blocks are contiguous.

    Args:
        dtype: safetensors' name of the dtype.
        names: names of the tensors, in the order of their blocks.
        shapes: their shapes, without the axis of the rows.

    Attributes:
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


class ColumnLayout(_Layout):
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

    def shape(self, rows: int) -> tuple[int, ...]:
        """Return the shape of the matrix."""
        width = (len(self.names),)
        return (rows, *width) if self.reductions is None else (rows, *width, len(self.reductions))


class AliasLayout(_Layout):
    """Names of tensors that share the memory of stored tensors at the same rows."""

    def __init__(self, names: tuple[str, ...], targets: tuple[str, ...]) -> None:
        self.names = names
        self.targets = targets


class LayoutPool:
    """Returns the same layout object for equal contents.

    Attributes:
        tensors: creates or returns a `TensorLayout`; takes its arguments.
        columns: creates or returns a `ColumnLayout`.
        aliases: creates or returns an `AliasLayout`.
    """

    def __init__(self) -> None:
        self.tensors = cache(TensorLayout)
        self.columns = cache(ColumnLayout)
        self.aliases = cache(AliasLayout)
