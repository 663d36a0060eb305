"""The sample for quantiles and histograms: small and deterministic."""

from __future__ import annotations

from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

__all__ = ["SAMPLE", "place_count", "places", "sample_rows"]

# Maximum number of sampled elements of a tensor (but at least one per channel).
SAMPLE = 65_536
_GOLDEN = (5**0.5 - 1) / 2


def place_count(channels: int, size: int) -> int:
    """Return the number of sampled elements per channel.

    Args:
        channels: number of channels; 1 for a tensor as a whole.
        size: number of elements per channel.
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
