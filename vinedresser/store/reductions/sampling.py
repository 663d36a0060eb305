"""Deterministic samples: elements for quantiles and histograms, and rows of a tensor."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from math import prod
from typing import Any

import numpy as np
from numpy.typing import NDArray

__all__ = [
    "SAMPLE",
    "affordable_rows",
    "place_count",
    "places",
    "sample_rows",
    "some_rows",
    "strided_rows",
]

# Maximum number of sampled elements of a tensor (but at least one per channel).
SAMPLE = 65_536
_GOLDEN = (5**0.5 - 1) / 2
# Maximum size of the sampled rows; large rows, such as photographs, are fewer.
_MOST_BYTES = 1 << 20


def place_count(channels: int, size: int) -> int:
    """Return the number of sampled elements per channel.

    Args:
        channels: number of channels; 1 for a tensor as a whole.
    """
    return min(size, max(1, SAMPLE // max(channels, 1)))


@lru_cache(maxsize=64)
def places(size: int, count: int) -> NDArray[np.int64]:
    """Return the positions of the sampled elements; int64 [count], ascending.

    One per stride: ``floor((i + frac(i g)) size / count)`` for i = 0, 1, … with the golden ratio
    conjugate g = (sqrt(5) - 1) / 2. A fixed position within the stride would be simpler, but would
    miss most features if the stride and a dimension of the tensor have a common factor (768
    features, a stride of 192).

    Args:
        size: number of elements.
        count: number of sampled elements, at most ``size``.
    """
    index = np.arange(count, dtype=np.float64)
    found = np.floor((index + (index * _GOLDEN) % 1.0) * (size / count)).astype(np.int64)
    found.flags.writeable = False
    return found


def sample_rows(rows: NDArray[np.generic]) -> NDArray[np.generic]:
    """Return a copy of the sampled elements of each row; [C, k], same dtype.

    Args:
        rows: [C, m], any dtype.
    """
    channels, size = rows.shape
    count = place_count(channels, size)
    return rows.copy() if count == size else rows[:, places(size, count)]


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
