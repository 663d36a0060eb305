"""Where values rank among those of the baseline, in bins whose law does not depend on the data.

Values are compared with 15 order statistics of the baseline. If the rows of baseline and windows
are exchangeable, the bins follow a Pólya urn whatever the distribution of the values: the next
value is in a bin with a probability proportional to the number of gaps between baseline values in
it, plus the number of values that were there since. Ties are ordered at random, which keeps this
exact for discrete values and missing ones.

In a cycle, such as a week, values are compared with those of the same phase.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

__all__ = ["BINS", "Edges", "counted", "outer_bins", "told_by_values"]

# Shares of the baseline below the lower edges; beside these, there is one at the median, and one at
# either extreme.
_SHARES = (1 / 64, 1 / 32, 1 / 16, 1 / 8, 1 / 4, 3 / 8)
BINS = 2 * (len(_SHARES) + 2)


class Edges:
    """Edges of the bins of several streams of values, in each phase of a cycle.

    Args:
        values: float64 [BINS - 1, phases, streams], ascending.
        ties: float64 [BINS - 1, phases, streams] in [0, 1), which order equal values.
        rows: int64 [phases, streams], numbers of values of the baseline.
    """

    def __init__(
        self, values: NDArray[np.float64], ties: NDArray[np.float64], rows: NDArray[np.int64]
    ) -> None:
        self.values, self.ties, self.rows = values, ties, rows
        gaps = [np.diff([0, *_ranks(int(one)), one + 1]) for one in rows.T.ravel()]
        self.gaps = np.array(gaps, np.float64).reshape(*rows.T.shape, BINS)
        """float64 [streams, phases, BINS], number of gaps between baseline values in each bin."""

    @classmethod
    def of(
        cls,
        baseline: NDArray[np.float64],
        ties: NDArray[np.float64],
        phase: NDArray[np.int64] | None = None,
    ) -> Edges:
        """Return the edges for values of a baseline.

        Args:
            baseline: float64 [rows, streams]; NaN ranks below all numbers.
            ties: float64 [rows, streams], uniform in [0, 1), independent of the baseline.
            phase: int64 [rows], phase of each row, of which each has at least one; None: there is
                a single one.
        """
        if phase is not None:
            parts = [
                cls.of(baseline[phase == one], ties[phase == one])
                for one in range(int(phase.max()) + 1)
            ]
            values, orders = (
                np.concatenate([getattr(part, name) for part in parts], axis=1)
                for name in ("values", "ties")
            )
            return cls(values, orders, np.concatenate([part.rows for part in parts]))
        known = _with_missing_lowest(baseline)
        rows, streams = known.shape
        at = np.lexsort((ties, known), axis=0)[_ranks(rows) - 1]
        columns = np.arange(streams)
        return cls(
            known[at, columns][:, None], ties[at, columns][:, None], np.full((1, streams), rows)
        )

    @classmethod
    def joined(cls, parts: Sequence[Edges]) -> Edges:
        """Return the edges of the streams of all parts, in their order."""
        values = np.concatenate([part.values for part in parts], axis=2)
        ties = np.concatenate([part.ties for part in parts], axis=2)
        return cls(values, ties, np.concatenate([part.rows for part in parts], axis=1))

    def bins(
        self,
        values: NDArray[np.float64],
        ties: NDArray[np.float64],
        phase: NDArray[np.int64] | None = None,
    ) -> NDArray[np.uint8]:
        """Return the bin of each value.

        Args:
            values: float64 [rows, streams]; NaN ranks below all numbers.
            ties: float64 [rows, streams], uniform in [0, 1), independent of the values.
            phase: int64 [rows], phase of each row; None: of all, the first one.

        Returns:
            uint8 [rows, streams], less than BINS.
        """
        known = _with_missing_lowest(values)
        found = np.zeros(known.shape, np.uint8)
        at = slice(0, 1) if phase is None else phase
        for edge, tie in zip(self.values[:, at], self.ties[:, at], strict=True):
            above = known > edge
            equal = known == edge
            if equal.any():
                above |= equal & (ties > tie)
            found += above
        return found


def outer_bins(values: NDArray[np.float64]) -> NDArray[np.uint8]:
    """Return the lowest bin for 0 and the highest for 1.

    Of bins of equal values, a part is chance. These show all of how successive values depend on
    each other.

    Args:
        values: float64 [rows, streams], 0 or 1.
    """
    return np.where(values > 0, BINS - 1, 0).astype(np.uint8)


def counted(
    bins: NDArray[np.uint8],
    used: NDArray[np.bool_],
    phase: NDArray[np.int64] | None = None,
    phases: int = 1,
) -> NDArray[np.float64]:
    """Count the values in each bin.

    Args:
        bins: uint8 [rows, streams].
        used: bool [rows, streams], the values to count.
        phase: int64 [rows], phase of each row; None: of all, the first one.
        phases: number of phases.

    Returns:
        float64 [streams, phases, BINS].
    """
    streams = bins.shape[1]
    at = np.arange(streams) * phases + (0 if phase is None else phase[:, None])
    flat = (at * BINS + bins)[used]
    found = np.bincount(flat, minlength=streams * phases * BINS)
    return found.reshape(streams, phases, BINS).astype(float)


def told_by_values(values: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the share of the variance of ranks that is of values, not of the order of equal ones.

    Args:
        values: float64 [rows, streams]; NaN is missing.

    Returns:
        float64 [streams], from 0 of a constant to 1.
    """
    rows = np.arange(3) - len(values)
    counts = (np.unique(one, return_counts=True)[1][:, None] for one in values.T)
    # Ranks of equal values are spread evenly over their share, and those of all values over 1. So
    # it is the probability that three rows are not equal.
    return np.array([1 - ((np.arange(3) - count) / rows).prod(1).sum() for count in counts])


def _ranks(rows: int) -> NDArray[np.int64]:
    """Return the ranks of the edges, from 1 to `rows`.

    They depend on the number of rows only: edges chosen by the data would have another law. In a
    small baseline some coincide, and the bins between them stay empty.
    """
    lower = [1, *(max(1, round(share * (rows + 1))) for share in _SHARES)]
    return np.array([*lower, (rows + 1) // 2, *(rows + 1 - rank for rank in reversed(lower))])


def _with_missing_lowest(values: NDArray[np.float64]) -> NDArray[np.float64]:
    return np.where(np.isnan(values), -np.inf, values)
