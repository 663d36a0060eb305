"""A sample of rows that needs no random numbers."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any

import numpy as np
from numpy.typing import NDArray

__all__ = ["affordable_rows", "some_rows", "strided_rows"]

# What some rows of a tensor may take; of large ones, such as photographs, there are fewer then.
_MOST_BYTES = 1 << 20


def affordable_rows(most: int | None, shape: Sequence[int], item_bytes: int) -> int | None:
    """Return how many rows of a tensor may be kept: as many as take 1 MiB; 0 if not even one does.

    Args:
        most: how many are asked for; None: all, whatever they take.
        shape: of the tensor, [N, ...].
        item_bytes: bytes of an element.
    """
    if most is None or not shape:
        return most
    return min(most, _MOST_BYTES // max(1, prod(shape[1:]) * item_bytes))


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
