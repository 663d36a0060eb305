"""Reduction of long curves to what a chart can show: outline and trend."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

__all__ = ["smoothed", "thinned"]

_MOST_BINS = 400
# Points below which there is no trend.
_FEWEST_TO_SMOOTH = 30
# Standard deviation of the Gaussian, as a share of all steps.
_WIDTH = 0.015


def thinned(
    steps: NDArray[np.int64], values: NDArray[np.float64]
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return at most 800 points with the same outline: the minimum and maximum of each bin.

    Shape legend: N points, M kept points.

    Args:
        steps: int64 [N], ascending.
        values: float64 [N]; a bin without a finite value becomes NaN, which breaks the line.

    Returns:
        Steps and values, float64 [M] each.
    """
    values = np.where(np.isfinite(values), values, np.nan)
    if len(steps) <= 2 * _MOST_BINS:
        return steps.astype(np.float64), values
    kept: list[int] = []
    for bin_ in np.array_split(np.arange(len(steps)), _MOST_BINS):
        inside = values[bin_]
        if np.isnan(inside).all():
            kept.append(int(bin_[0]))
            continue
        kept.extend(sorted({int(bin_[np.nanargmin(inside)]), int(bin_[np.nanargmax(inside)])}))
    return steps[kept].astype(np.float64), values[kept]


def smoothed(
    steps: NDArray[np.int64], values: NDArray[np.float64]
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return the trend by local linear regression with Gaussian weights.

    Unlike a running mean, local regression (Cleveland 1979, here without robustness weights) does
    not lag behind the curve and is not biased at its ends. The result is empty if there are fewer
    than 30 finite points. For the trend on a logarithmic axis, pass logarithms.

    Args:
        steps: int64 [N], ascending.
        values: float64 [N]; non-finite values are ignored.

    Returns:
        Steps and values, float64 [M] each, M <= 400.
    """
    finite = np.isfinite(values)
    steps, values = steps[finite], values[finite]
    if len(steps) < _FEWEST_TO_SMOOTH or steps[0] == steps[-1]:
        return np.empty(0), np.empty(0)
    bins = min(_MOST_BINS, len(steps))
    # Steps in units of bins: points in one bin share its weight but keep their places.
    place = (steps - steps[0]) / (steps[-1] - steps[0]) * (bins - 1)
    bin_ = np.rint(place).astype(np.intp)
    width = max(1.0, _WIDTH * bins)
    reach = int(4 * width)
    kernel = np.exp(-0.5 * (np.arange(-reach, reach + 1) / width) ** 2)

    def spread(weights: NDArray[np.float64]) -> NDArray[np.float64]:
        return np.convolve(np.bincount(bin_, weights, bins), kernel)[reach:][:bins]

    count = np.bincount(bin_, minlength=bins)
    seen = count > 0
    centre = np.bincount(bin_, place, bins)[seen] / count[seen]
    # Values near the largest float can overflow; the line breaks there.
    with np.errstate(over="ignore", invalid="ignore"):
        total = spread(np.ones_like(values))[seen]
        mean_place, mean = spread(place)[seen] / total, spread(values)[seen] / total
        variance = spread(place * place)[seen] / total - mean_place**2
        covariance = spread(place * values)[seen] / total - mean_place * mean
        # A point without neighbours has no slope.
        slope = np.where(variance > 1e-6, covariance / np.maximum(variance, 1e-6), 0.0)
        trend = mean + slope * (centre - mean_place)
    return steps[0] + centre / (bins - 1) * (steps[-1] - steps[0]), trend
