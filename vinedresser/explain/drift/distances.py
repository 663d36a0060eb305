"""Distances between two samples of a column. They are reported, and raise no alarm."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

__all__ = [
    "category_shares",
    "decile_shares",
    "kolmogorov_smirnov",
    "population_stability",
    "wasserstein",
]

# So that empty bins do not make the index infinite.
_LEAST_SHARE = 1e-4


def kolmogorov_smirnov(first: NDArray[np.float64], second: NDArray[np.float64]) -> float:
    """Return the largest difference of the distribution functions of two samples.

    Args:
        first: float64 [rows], at least one, without NaN.
        second: float64 [rows], at least one, without NaN.
    """
    both = np.concatenate([first, second])
    below = [
        np.searchsorted(np.sort(one), both, side="right") / len(one) for one in (first, second)
    ]
    return float(abs(below[0] - below[1]).max())


def wasserstein(first: NDArray[np.float64], second: NDArray[np.float64]) -> float:
    """Return the mean distance by which one sample has to be moved to become the other.

    Args:
        first: float64 [rows], at least one, finite.
        second: float64 [rows], at least one, finite.
    """
    both = np.sort(np.concatenate([first, second]))
    below = [
        np.searchsorted(np.sort(one), both[:-1], side="right") / len(one) for one in (first, second)
    ]
    return float((abs(below[0] - below[1]) * np.diff(both)).sum())


def population_stability(first: NDArray[np.float64], second: NDArray[np.float64]) -> float:
    """Return the population stability index of shares, the symmetric Kullback-Leibler divergence.

    Args:
        first: float64 [bins], shares.
        second: float64 [bins], shares.
    """
    p, q = (np.maximum(one, _LEAST_SHARE) for one in (first, second))
    return float(((p - q) * np.log(p / q)).sum())


def decile_shares(
    baseline: NDArray[np.float64], window: NDArray[np.float64]
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return the shares of both samples between the deciles of the baseline, float64 [10] each."""
    edges = np.quantile(baseline, np.arange(0.1, 0.95, 0.1))
    first, second = (
        np.bincount(np.searchsorted(edges, one, side="right"), minlength=10) / len(one)
        for one in (baseline, window)
    )
    return first, second


def category_shares(baseline: NDArray[Any], window: NDArray[Any]) -> dict[str, tuple[float, float]]:
    """Return the shares of each category in two samples; missing values are no category.

    Args:
        baseline: object [rows] of strings and None.
        window: object [rows] of strings and None.
    """
    counts: dict[str, list[int]] = {}
    for sample, values in enumerate((baseline, window)):
        for one in values.tolist():
            if one is not None:
                counts.setdefault(one, [0, 0])[sample] += 1
    sizes = [max(sum(one[sample] for one in counts.values()), 1) for sample in (0, 1)]
    return {name: (one[0] / sizes[0], one[1] / sizes[1]) for name, one in sorted(counts.items())}
