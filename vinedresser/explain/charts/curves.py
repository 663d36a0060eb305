"""From every step of a long training to what a chart can show of it."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

__all__ = ["smoothed", "thinned"]

_MOST_BINS = 400
# Fewer points are a line already.
_FEWEST_TO_SMOOTH = 30
# Width of the smoothing, as a share of all steps: a Gaussian's standard deviation.
_WIDTH = 0.015


def thinned(
    steps: NDArray[np.int64], values: NDArray[np.float64]
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return at most 800 points with the outline of all: of every bin its smallest and largest.

    Shape legend: N, the points; M, those that are kept.

    Args:
        steps: int64, [N], ascending.
        values: float64, [N]; what is not finite is left out where there are many, and breaks the
            line (NaN) where a bin has nothing else.

    Returns:
        Steps and values, float64, [M] each.
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
    """Return the trend: at each step a straight line through its neighbours, Gaussian-weighted.

    Local linear regression (Cleveland 1979, without the robustness weights) neither lags behind the
    curve, as a running mean does, nor bends at its ends. Empty where there are too few finite
    points to need a trend. For the trend on a logarithmic axis, give logarithms.

    Args:
        steps: int64, [N], ascending.
        values: float64, [N]; what is not finite does not count.

    Returns:
        Steps and values, float64, [M] each, M <= 400.
    """
    finite = np.isfinite(values)
    steps, values = steps[finite], values[finite]
    if len(steps) < _FEWEST_TO_SMOOTH or steps[0] == steps[-1]:
        return np.empty(0), np.empty(0)
    bins = min(_MOST_BINS, len(steps))
    # Steps in units of bins: what falls into one bin shares its weights, but keeps its place.
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
