"""A sample of rows that needs no random numbers."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

__all__ = ["some_rows", "strided_rows"]


def strided_rows(rows: int, most: int) -> NDArray[np.int64] | None:
    """Return evenly strided row numbers, ascending; None where all rows are few enough.

    Args:
        rows: how many there are.
        most: how many may be taken, at least 1.
    """
    if rows <= most:
        return None
    return np.linspace(0, rows - 1, most).round().astype(np.int64)


def some_rows(array: NDArray[Any], most: int | None) -> NDArray[Any]:
    """Return evenly strided rows of an array, or the array itself where it has no more.

    Args:
        array: [N, ...], or without dimensions.
        most: how many rows may be taken; None: all.
    """
    if most is None or not array.ndim:
        return array
    places = strided_rows(len(array), most)
    return array if places is None else array[places]
