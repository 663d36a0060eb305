"""What a cycle does to values, so that requests of some phases are compared with all of them."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from vinedresser.drift.distances import SortedSample
from vinedresser.drift.sizes.categories import CategorySizes

__all__ = ["NumberPhases", "SharePhases", "rows_alike"]

# Values count up to so many standard deviations in the middle of a phase.
_MOST_DEVIATIONS = 10.0
# A phase may be so much wider or narrower than the others.
_RATIO = 5.0


class NumberPhases:
    """Moves and stretches numbers of each phase to where those of all phases are.

    Args:
        sample: values of the baseline, float64 [rows]; NaN is missing.
        phase: int64 [rows], phase of each.
    """

    def __init__(self, sample: NDArray[np.float64], phase: NDArray[np.int64]) -> None:
        phases = int(phase.max(initial=0)) + 1
        self._middle = 0.0
        self._centres, self._ratios = np.zeros(phases), np.ones(phases)
        known = ~np.isnan(sample)
        if phases == 1 or not known.any():
            return
        values = SortedSample(sample[known])
        limit = _MOST_DEVIATIONS * values.spread
        middle = values.quantile(0.5)
        clipped = sample[known].clip(middle - limit, middle + limit)
        at = phase[known]
        counts = np.maximum(np.bincount(at, minlength=phases), 1)
        self._middle = float(clipped.mean())
        present = np.bincount(at, minlength=phases) > 0
        sums = np.bincount(at, clipped, phases) / counts
        self._centres = np.where(present, sums, self._middle)
        squares = np.bincount(at, (clipped - self._centres[at]) ** 2, phases) / counts
        within = float(np.sqrt((squares * counts).sum() / counts.sum()))
        spreads = np.sqrt(squares)
        known_spread = (spreads > 0) & (within > 0)
        ratios = np.divide(within, spreads, out=np.ones(phases), where=known_spread)
        self._ratios = ratios.clip(1 / _RATIO, _RATIO)

    def alike(self, values: NDArray[np.float64], phase: NDArray[np.int64]) -> NDArray[np.float64]:
        """Return values as they would be without the cycle, float64 [rows]."""
        if len(self._centres) == 1:
            return values
        return np.asarray((values - self._centres[phase]) * self._ratios[phase] + self._middle)


class SharePhases:
    """By how much the sums of categories differ between phases.

    Args:
        sizes: of the column.
        sample: values of the baseline, object [rows].
        phase: int64 [rows], phase of each.
    """

    def __init__(
        self, sizes: CategorySizes, sample: NDArray[Any], phase: NDArray[np.int64]
    ) -> None:
        phases = int(phase.max(initial=0)) + 1
        usual = sizes.sums(sample) / len(sample)
        self._more = np.zeros((phases, sizes.size))
        for one in range(phases if phases > 1 else 0):
            values = sample[phase == one]
            if len(values):
                self._more[one] = sizes.sums(values) / len(values) - usual

    def correction(self, phase: NDArray[np.int64]) -> NDArray[np.float64]:
        """Return what the sums of rows would have without the cycle, less what they have.

        Args:
            phase: int64 [rows], phase of each row.
        """
        counts = np.bincount(phase, minlength=len(self._more))
        return np.asarray(-(counts @ self._more))


def rows_alike(before: NDArray[np.float64], after: NDArray[np.float64]) -> float:
    """Return how many rows tell as much as those before, in the phases of those after.

    Args:
        before: float64 [phases], rows in each phase before a change.
        after: float64 [phases], rows since.
    """
    shares = after / max(float(after.sum()), 1.0)
    used = shares > 0
    if not used.any():
        return float(before.sum())
    # The variance of a mean of the phases with these shares.
    return float(1 / (shares[used] ** 2 / np.maximum(before[used], 1)).sum())
