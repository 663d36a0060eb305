"""Attention matrices as cells of a picture.

Shape legend: H heads, L queries, S keys; R rows and C columns of cells.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from vinedresser.explain.charts.palette import FIRST_LEVEL, LEVELS, NOT_FINITE, ZERO

__all__ = ["MASKED", "averaged", "cell_indices"]

# Masked queries have a colour of their own, which no weight has.
MASKED = NOT_FINITE


def averaged(weights: NDArray[np.float64], most: int) -> NDArray[np.float64]:
    """Return attention with at most ``most`` rows and columns of cells.

    A cell is the weight that its keys get together, averaged over its unmasked queries, so that a
    row of cells sums to 1 like a query's weights.

    Args:
        weights: float64 [H, L, S]; NaN for masked queries.
        most: maximum number of rows, and of columns.

    Returns:
        float64 [H, R, C]; NaN where all queries of a row are masked.
    """
    _, queries, keys = weights.shape
    columns = np.add.reduceat(weights, _starts(keys, most), axis=2)
    starts = _starts(queries, most)
    live = ~np.isnan(columns)
    sums = np.add.reduceat(np.where(live, columns, 0.0), starts, axis=1)
    counts = np.add.reduceat(live.astype(np.int64), starts, axis=1)
    return np.asarray(np.divide(sums, counts, out=np.full(sums.shape, np.nan), where=counts > 0))


def _starts(size: int, most: int) -> NDArray[np.int64]:
    """Return the first place of each cell, int64 [cells]."""
    return np.linspace(0, size, min(size, most), endpoint=False).astype(np.int64)


def cell_indices(cells: NDArray[np.float64]) -> NDArray[np.uint8]:
    """Return palette indices: from 0 to 1, and those of masked cells and of exact zeros.

    Args:
        cells: float64 of any shape.
    """
    known = np.nan_to_num(cells)
    indices = (FIRST_LEVEL + np.round(np.clip(known, 0, 1) * (LEVELS - 1))).astype(np.uint8)
    indices[known == 0] = ZERO
    indices[np.isnan(cells)] = MASKED
    return indices
