"""Where values rank among those of the baseline, in bins whose law does not depend on the data.

Values are compared with 15 order statistics of the baseline. If the rows of baseline and windows
are exchangeable, the bins follow a Pólya urn whatever the distribution of the values: the next
value is in a bin with a probability proportional to the number of gaps between baseline values in
it, plus the number of values that were there since. Ties are ordered at random, which keeps this
exact for discrete values and missing ones.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

__all__ = ["BINS", "Edges", "counted"]

# Shares of the baseline below the lower edges; beside these, there is one at the median, and one at
# either extreme.
_SHARES = (1 / 64, 1 / 32, 1 / 16, 1 / 8, 1 / 4, 3 / 8)
BINS = 2 * (len(_SHARES) + 2)


class Edges:
    """Edges of the bins of several streams of values.

    Args:
        values: float64 [BINS - 1, streams], ascending.
        ties: float64 [BINS - 1, streams] in [0, 1), which order equal values.
        rows: int64 [streams], numbers of values of the baseline.
    """

    def __init__(
        self, values: NDArray[np.float64], ties: NDArray[np.float64], rows: NDArray[np.int64]
    ) -> None:
        self.values, self.ties, self.rows = values, ties, rows
        self.gaps = np.array(
            [np.diff([0, *_ranks(int(one)), one + 1]) for one in rows], np.float64
        ).reshape(-1, BINS)
        """float64 [streams, BINS], number of gaps between baseline values in each bin."""

    @classmethod
    def of(cls, baseline: NDArray[np.float64], ties: NDArray[np.float64]) -> Edges:
        """Return the edges for values of a baseline.

        Args:
            baseline: float64 [rows, streams]; NaN ranks below all numbers.
            ties: float64 [rows, streams], uniform in [0, 1), independent of the baseline.
        """
        known = _with_missing_lowest(baseline)
        rows, streams = known.shape
        at = np.lexsort((ties, known), axis=0)[_ranks(rows) - 1]
        columns = np.arange(streams)
        return cls(known[at, columns], ties[at, columns], np.full(streams, rows))

    @classmethod
    def joined(cls, parts: Sequence[Edges]) -> Edges:
        """Return the edges of the streams of all parts, in their order."""
        values = np.concatenate([one.values for one in parts], axis=1)
        ties = np.concatenate([one.ties for one in parts], axis=1)
        return cls(values, ties, np.concatenate([one.rows for one in parts]))

    def bins(self, values: NDArray[np.float64], ties: NDArray[np.float64]) -> NDArray[np.uint8]:
        """Return the bin of each value.

        Args:
            values: float64 [rows, streams]; NaN ranks below all numbers.
            ties: float64 [rows, streams], uniform in [0, 1), independent of the values.

        Returns:
            uint8 [rows, streams], less than BINS.
        """
        known = _with_missing_lowest(values)
        found = np.zeros(known.shape, np.uint8)
        for edge, tie in zip(self.values, self.ties, strict=True):
            above = known > edge
            equal = known == edge
            if equal.any():
                above |= equal & (ties > tie)
            found += above
        return found


def counted(bins: NDArray[np.uint8], used: NDArray[np.bool_]) -> NDArray[np.float64]:
    """Count the values in each bin.

    Args:
        bins: uint8 [rows, streams].
        used: bool [rows, streams], the values to count.

    Returns:
        float64 [streams, BINS].
    """
    streams = bins.shape[1]
    flat = (np.arange(streams) * BINS + bins)[used]
    return np.bincount(flat, minlength=streams * BINS).reshape(streams, BINS).astype(float)


def _ranks(rows: int) -> NDArray[np.int64]:
    """Return the ranks of the edges, from 1 to `rows`.

    They depend on the number of rows only: edges chosen by the data would have another law. In a
    small baseline some coincide, and the bins between them stay empty.
    """
    lower = [1, *(max(1, round(share * (rows + 1))) for share in _SHARES)]
    return np.array([*lower, (rows + 1) // 2, *(rows + 1 - rank for rank in reversed(lower))])


def _with_missing_lowest(values: NDArray[np.float64]) -> NDArray[np.float64]:
    return np.where(np.isnan(values), -np.inf, values)
