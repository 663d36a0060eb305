"""Quantiles and histograms of a sample; expensive, because they sort it."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from vinedresser.store.reductions.elementwise import widened
from vinedresser.store.reductions.naming import Reduction

__all__ = ["BINS", "Distribution", "Histogram"]

# Bins of a histogram.
BINS = 64


class Distribution:
    """The sampled elements of each channel, sorted on first use.

    Args:
        sample: [C, k], any real or complex dtype; k may be 0.
    """

    def __init__(self, sample: NDArray[np.generic]) -> None:
        self._sample = sample
        self._sorted: dict[bool, NDArray[np.float64]] = {}

    def compute(self, word: Reduction) -> NDArray[np.float64]:
        """Return a quantile, float64 [C], or a histogram, float64 [C, 2 + 64], per channel."""
        if word.absolute not in self._sorted:
            wide = widened(self._sample)
            # NaN comes last.
            self._sorted[word.absolute] = np.sort(np.abs(wide) if word.absolute else wide, axis=1)
        ordered = self._sorted[word.absolute]
        if word.statistic == "quantile":
            return _quantile_rows(ordered, word.share)
        return _histogram_rows(ordered)


def _quantile_rows(ordered: NDArray[np.float64], share: float) -> NDArray[np.float64]:
    """Return a quantile of each row; float64, [C].

    Args:
        ordered: float64 [C, k], each row ascending, NaN last.
        share: fraction of elements below the quantile, from 0 to 1.
    """
    size = ordered.shape[1]
    if not size:
        return np.full(len(ordered), np.nan)
    low = int(share * (size - 1))
    part = share * (size - 1) - low
    found = ordered[:, low]
    if part:
        above = ordered[:, low + 1]
        with np.errstate(all="ignore"):
            between = found * (1 - part) + above * part
        # Interpolating between two infinities of one sign would give NaN.
        found = np.where(found == above, found, between)
    return np.where(np.isnan(ordered[:, -1]), np.nan, found)


def _histogram_rows(ordered: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return a histogram of the finite elements of each row: edges and counts.

    Args:
        ordered: float64 [C, k], each row ascending, NaN last.

    Returns:
        float64 [C, 2 + 64].
    """
    found = np.zeros((len(ordered), 2 + BINS))
    for row, result in zip(ordered, found, strict=True):
        finite = row[np.isfinite(row)]
        if not finite.size:
            result[:2] = np.nan
            continue
        result[:2] = finite[0], finite[-1]
        inner = _bin_edges(finite[0], finite[-1])[1:-1]
        cuts = np.searchsorted(finite, inner, side="left")
        result[2:] = np.diff(cuts, prepend=0, append=finite.size)
    return found


def _bin_edges(low: float, high: float) -> NDArray[np.float64]:
    """Return the bin edges of a histogram; float64 [65], ascending."""
    # Not low + share (high - low): the difference may overflow.
    share = np.arange(BINS + 1) / BINS
    return np.clip(np.maximum.accumulate(low * (1 - share) + high * share), low, high)


class Histogram(NamedTuple):
    """The distribution of a tensor's elements, in the layout of `numpy.histogram`.

    Attributes:
        counts: number of sampled elements per bin; int64 [64].
        edges: bin edges; float64 [65], from the smallest finite element to the largest; NaN if no
            element is finite.
    """

    counts: NDArray[np.int64]
    edges: NDArray[np.float64]

    @classmethod
    def unpacked(cls, stored: NDArray[np.float64]) -> Histogram:
        """Return the histogram of a stored vector.

        Args:
            stored: lowest edge, highest edge, counts; float64 [2 + 64].
        """
        edges = _bin_edges(float(stored[0]), float(stored[1]))
        return cls(stored[2:].astype(np.int64), edges)
