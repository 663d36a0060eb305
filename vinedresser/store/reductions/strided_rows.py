"""A deterministic sample of the rows of a tensor."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any

import numpy as np
from numpy.typing import NDArray

__all__ = ["affordable_rows", "some_rows", "strided_rows"]

# Maximum size of the sampled rows; large rows, such as photographs, are fewer.
_MOST_BYTES = 1 << 20


def affordable_rows(most: int | None, shape: Sequence[int], item_bytes: int) -> int | None:
    """Return how many rows of a tensor may be kept: at most 1 MiB; 0 if a single row is larger.

    Args:
        most: requested number of rows; None: all, of any size.
        shape: shape of the tensor, [rows, ...].
        item_bytes: bytes per element.
    """
    if most is None or not shape:
        return most
    return min(most, _MOST_BYTES // max(1, prod(shape[1:]) * item_bytes))


def strided_rows(rows: int, most: int) -> NDArray[np.int64] | None:
    """Return evenly strided row numbers; int64 [most], ascending; None to keep all rows.

    Args:
        rows: number of rows.
        most: maximum number of rows to keep, at least 1.
    """
    if rows <= most:
        return None
    return np.linspace(0, rows - 1, most).round().astype(np.int64)


def some_rows(array: NDArray[Any], most: int | None) -> NDArray[Any]:
    """Return evenly strided rows of an array, or the array itself if it has no more rows.

    Args:
        array: [rows, ...] or a scalar array, any dtype.
        most: maximum number of rows; None: all.
    """
    if most is None or not array.ndim:
        return array
    places = strided_rows(len(array), most)
    return array if places is None else array[places]
