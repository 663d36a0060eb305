"""Distances between two samples of numbers. They are reported, and raise no alarm."""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np
from numpy.typing import NDArray

from vinedresser.drift.columns import Kind

__all__ = [
    "ReportedDistances",
    "SortedSample",
    "kolmogorov_smirnov",
    "population_stability",
    "wasserstein",
]

# So that empty bins do not make the index infinite.
_LEAST_SHARE = 1e-4


class SortedSample:
    """A sample of numbers in ascending order.

    Args:
        values: float64 [rows], at least one, without NaN; infinite ones count as 1e300.
    """

    def __init__(self, values: NDArray[np.float64]) -> None:
        self.values = np.sort(np.clip(values, -1e300, 1e300))
        # At the 10 %, 20 % and so on; [9].
        self._deciles = [self.quantile(share / 10) for share in range(1, 10)]
        self._sums = np.concatenate([[0.0], np.cumsum(self.values)])

    def quantile(self, share: float) -> float:
        """Return a quantile, interpolated linearly."""
        at = share * (len(self.values) - 1)
        low = self.values[int(at)]
        return float(
            low + (at - int(at)) * (self.values[min(int(at) + 1, len(self.values) - 1)] - low)
        )

    @property
    def spread(self) -> float:
        """Standard deviation of a normal distribution with the same quartiles.

        If the quartiles are equal, the root mean square distance to the median; 0 of a constant.
        """
        found = (self.quantile(0.75) - self.quantile(0.25)) / 1.349
        if found > 0:
            return found
        distances = (self.values - self.quantile(0.5)).clip(-1e150, 1e150)
        return float(np.sqrt(np.mean(distances**2)))

    def decile_shares(self, other: SortedSample) -> NDArray[np.float64]:
        """Return the shares of another sample between the deciles of this one, float64 [10]."""
        below = np.searchsorted(other.values, self._deciles)
        return np.asarray(np.diff([0, *below, len(other.values)]) / len(other.values))

    def area_below(self, points: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return the integral of the distribution function up to each point, float64 [points]."""
        count = np.searchsorted(self.values, points, side="right")
        return np.asarray((points * count - self._sums[count]) / len(self.values))


def kolmogorov_smirnov(first: SortedSample, second: SortedSample) -> float:
    """Return the largest difference of the distribution functions of two samples."""
    # It is at a value of the second sample, or just before it.
    differences = [
        np.searchsorted(first.values, second.values, side=side) / len(first.values)
        - np.searchsorted(second.values, second.values, side=side) / len(second.values)
        for side in ("left", "right")
    ]
    return float(abs(np.concatenate(differences)).max())


def wasserstein(first: SortedSample, second: SortedSample) -> float:
    """Return the mean distance by which one sample has to be moved to become the other.

    It is the area between the distribution functions. Between two neighbours of the second sample,
    that of the second is constant, and that of the first crosses it once at most.
    """
    low, high = second.values[:-1], second.values[1:]
    level = np.arange(1, len(second.values)) / len(second.values)
    at = np.ceil(level * len(first.values) - 1e-9).astype(np.int64) - 1
    cross = np.clip(first.values[at], low, high)
    area_low, area_cross, area_high = (first.area_below(one) for one in (low, cross, high))
    between = level * (2 * cross - low - high) - 2 * area_cross + area_low + area_high
    ends = second.values[[0, -1]]
    before, until_last = first.area_below(ends)
    after = first.values.mean() - ends[1] + until_last
    return float(before + between.sum() + after)


def population_stability(first: NDArray[np.float64], second: NDArray[np.float64]) -> float:
    """Return the population stability index of shares, the symmetric Kullback-Leibler divergence.

    Args:
        first: float64 [bins], shares.
        second: float64 [bins], shares.
    """
    p, q = (np.maximum(one, _LEAST_SHARE) for one in (first, second))
    return float(((p - q) * np.log(p / q)).sum())


class ReportedDistances:
    """Distances of the windows of a column from its baseline.

    Args:
        sample: its values in the baseline; see `read_column`.
    """

    def __init__(self, kind: Kind, sample: NDArray[Any]) -> None:
        self._kind = kind
        self._numbers: SortedSample | None = None
        self._counts: Counter[str] = Counter()
        if kind == "category":
            self._counts = Counter(one for one in sample.tolist() if one is not None)
        elif kind == "number" and len(known := sample[~np.isnan(sample)]):
            self._numbers = SortedSample(known)

    def of(self, values: NDArray[Any]) -> dict[str, float]:
        """Return the distances by name.

        Of numbers "ks", "psi" and "wasserstein" (in standard deviations of the baseline), of
        categories "psi" and "total_variation".

        Args:
            values: of a window; missing ones are left out.
        """
        if self._kind == "category":
            return self._of_categories(Counter(one for one in values.tolist() if one is not None))
        if self._numbers is None or not len(known := values[~np.isnan(values)]):
            return {}
        before, after = self._numbers, SortedSample(known)
        shares = before.decile_shares(before), before.decile_shares(after)
        found = {"ks": kolmogorov_smirnov(before, after), "psi": population_stability(*shares)}
        if before.spread > 0:
            found["wasserstein"] = wasserstein(before, after) / before.spread
        return found

    def _of_categories(self, counts: Counter[str]) -> dict[str, float]:
        rows, more = self._counts.total(), counts.total()
        if not rows or not more:
            return {}
        names = sorted({*self._counts, *counts})
        shares = np.array([(self._counts[name] / rows, counts[name] / more) for name in names])
        return {
            "psi": population_stability(shares[:, 0], shares[:, 1]),
            "total_variation": float(abs(shares[:, 0] - shares[:, 1]).sum() / 2),
        }
