"""The sample of which quantiles and histograms are taken: small, and the same whoever takes it."""

from __future__ import annotations

from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

__all__ = ["SAMPLE", "place_count", "places", "sample_rows"]

# Elements of a tensor that are sampled at the most (but one of each channel at the least).
SAMPLE = 65_536
_GOLDEN = (5**0.5 - 1) / 2


def place_count(channels: int, size: int) -> int:
    """Return how many elements of each channel are sampled.

    Args:
        channels: how many there are; 1 for a tensor as a whole.
        size: how many elements each of them has.
    """
    return min(size, max(1, SAMPLE // max(channels, 1)))


@lru_cache(maxsize=64)
def places(size: int, count: int) -> NDArray[np.int64]:
    """Return which of the elements are sampled; int64, [count], ascending.

    One of each of ``count`` equal strides: ``floor((i + frac(i g)) size / count)`` for i = 0, 1, …
    with g the golden section, (sqrt(5) - 1) / 2. The same place of every stride would be simpler,
    but where the stride and a dimension of the tensor have a common factor (768 features, a stride
    of 192), few of its features would ever be seen.

    Args:
        size: number of elements.
        count: how many are sampled, at most ``size``.
    """
    index = np.arange(count, dtype=np.float64)
    found = np.floor((index + (index * _GOLDEN) % 1.0) * (size / count)).astype(np.int64)
    found.flags.writeable = False
    return found


def sample_rows(rows: NDArray[np.generic]) -> NDArray[np.generic]:
    """Return a copy of the sampled elements of each row, [C, k].

    Args:
        rows: [C, m].
    """
    channels, size = rows.shape
    count = place_count(channels, size)
    return rows.copy() if count == size else rows[:, places(size, count)]
