"""Curves of many runs on one axis: what a screen can show of them, smoothed, or as means of groups.

Shape legend: N values of a curve; M places on the axis.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

__all__ = ["Band", "Curve", "Grid", "Means", "moving_average", "usual_limit"]

_Floats = NDArray[np.float64]
Band = Literal["std", "range"]

# Values beyond this multiple of what the runs usually reach do not extend an axis.
_BEYOND = 30.0
# By this factor, the terms of a moving average are scaled up at most before they are summed.
_SCALED = 1e6


class Curve(NamedTuple):
    """A scalar of a run over an axis.

    Attributes:
        x: float64 [N], ascending.
        y: float64 [N].
    """

    x: _Floats
    y: _Floats


class Means(NamedTuple):
    """Runs of a group over the places of a grid; NaN where no run has a value.

    Attributes:
        mean: float64 [M].
        low: float64 [M].
        high: float64 [M].
        reached: int64 [M]; number of runs that reach the place.
    """

    mean: _Floats
    low: _Floats
    high: _Floats
    reached: NDArray[np.int64]


@dataclass(frozen=True)
class Grid:
    """Places on the axis that all curves of a chart share.

    If they have few distinct places, these are the grid. Otherwise the range is cut into equal
    bins, each with two places: a curve has its minimum and its maximum of the bin there, so that
    no peak is lost.

    Attributes:
        places: float64 [M], ascending.
        bins: number of bins; 0 if the places are those of the values.
        first: beginning of the range.
        last: its end.
    """

    places: _Floats
    bins: int
    first: float
    last: float

    @classmethod
    def over(cls, curves: Iterable[Curve], first: float, last: float, bins: int) -> Grid:
        """Return the grid of a range.

        Args:
            curves: the curves; of those outside the range, the nearest values count as well, so
                that lines lead out of the chart.
            first: beginning of the range.
            last: its end.
            bins: number of bins; up to twice as many distinct places are kept as they are.
        """
        found = np.empty(0)
        for curve in curves:
            start = max(int(np.searchsorted(curve.x, first)) - 1, 0)
            stop = int(np.searchsorted(curve.x, last, side="right")) + 1
            found = np.union1d(found, curve.x[start:stop])
            inside = (found >= first) & (found <= last)
            if inside.sum() > 2 * bins:
                width = (last - first) / bins
                halves = np.arange(2 * bins) / 2 + 0.25
                return cls(first + halves * width, bins, first, last)
        return cls(found, 0, first, last)

    def outline(self, curve: Curve) -> _Floats:
        """Return what is drawn of a curve, float64 [M].

        NaN: the curve has no value there; infinity: what it has there is not finite.
        """
        drawn = np.full(len(self.places), np.nan)
        if not self.bins:
            where = np.searchsorted(self.places, curve.x)
            inside = where < len(self.places)
            inside[inside] = self.places[where[inside]] == curve.x[inside]
            drawn[where[inside]] = np.where(np.isfinite(curve.y), curve.y, np.inf)[inside]
            return drawn
        bin_, x, y = self._binned(curve)
        finite = np.isfinite(y)
        drawn[2 * np.unique(bin_)] = np.inf
        bin_, x, y = bin_[finite], x[finite], y[finite]
        if not len(y):
            return drawn
        starts, ends = _runs_of(bin_)
        low, high = np.minimum.reduceat(y, starts), np.maximum.reduceat(y, starts)
        filled = bin_[starts]
        # Which of them comes first is hardly seen within a bin: the direction decides.
        falls = y[starts] > y[ends]
        drawn[2 * filled] = np.where(falls, high, low)
        drawn[2 * filled + 1] = np.where(falls, low, high)
        single = low == high
        late = (x[starts] - self.first) / self._width - filled >= 0.5
        drawn[2 * filled[single & ~late] + 1] = np.nan
        drawn[2 * filled[single & late]] = np.nan
        return drawn

    @property
    def centres(self) -> _Floats:
        """Places of means: those of the values, or one in each bin."""
        if not self.bins:
            return self.places
        return np.asarray(self.first + (np.arange(self.bins) + 0.5) * self._width)

    def levels(self, curve: Curve) -> _Floats:
        """Return a curve at the centres, float64 [M]; NaN outside its first and last value.

        It is the mean of the finite values of a bin, with straight lines between.
        """
        finite = np.isfinite(curve.y)
        curve = Curve(curve.x[finite], curve.y[finite])
        if not len(curve.x):
            return np.full(len(self.centres), np.nan)
        x, y = curve
        if self.bins:
            bin_, _, inside = self._binned(curve)
            if len(inside):
                starts, _ = _runs_of(bin_)
                y = np.add.reduceat(inside, starts) / np.diff([*starts, len(inside)])
                x = self.centres[bin_[starts]]
        return np.interp(self.centres, x, y, left=np.nan, right=np.nan)

    def means(self, curves: Sequence[Curve], band: Band) -> Means:
        """Return the mean of curves and their spread.

        Args:
            curves: the curves of a group.
            band: "std": the mean ± the standard deviation (N - 1); "range": minimum and maximum.
        """
        levels = np.array([self.levels(curve) for curve in curves]).reshape(len(curves), -1)
        known = np.isfinite(levels)
        count = known.sum(axis=0)
        some = np.maximum(count, 1)
        filled = np.where(known, levels, 0.0)
        mean = np.where(count > 0, filled.sum(axis=0) / some, np.nan)
        if band == "range":
            low = np.where(known, levels, np.inf).min(axis=0, initial=np.inf)
            high = np.where(known, levels, -np.inf).max(axis=0, initial=-np.inf)
        else:
            square = np.where(known, (levels - mean) ** 2, 0.0).sum(axis=0)
            spread = np.sqrt(square / np.maximum(count - 1, 1))
            low, high = mean - spread, mean + spread
        nothing = count == 0
        return Means(mean, np.where(nothing, np.nan, low), np.where(nothing, np.nan, high), count)

    @property
    def _width(self) -> float:
        return (self.last - self.first) / self.bins

    def _binned(self, curve: Curve) -> tuple[NDArray[np.int64], _Floats, _Floats]:
        """Return bin, x and y of the values in the range."""
        inside = (curve.x >= self.first) & (curve.x <= self.last)
        x, y = curve.x[inside], curve.y[inside]
        bin_ = np.minimum(((x - self.first) / self._width).astype(np.int64), self.bins - 1)
        return bin_, x, y


def _runs_of(bin_: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return the first and the last place of each of equal neighbours; there is at least one."""
    borders = np.flatnonzero(np.diff(bin_)) + 1
    return np.concatenate([[0], borders]), np.concatenate([borders, [len(bin_)]]) - 1


def moving_average(values: _Floats, weight: float) -> _Floats:
    """Return the exponential moving average, without the bias of its beginning.

    It is the mean of the values so far, each weighted by ``weight`` to the power of its age in
    values; those that are not finite are left out.

    Args:
        values: float64 [N].
        weight: weight of the past, from 0 to below 1; 0 changes nothing.

    Returns:
        float64 [N]; what is not finite stays as it is.
    """
    finite = np.isfinite(values)
    found = values.copy()
    if not weight or not finite.any():
        return found
    known = values[finite]
    size = min(max(1, int(math.log(_SCALED) / -math.log(weight))), len(known))
    blocks = -(-len(known) // size)
    padded = np.zeros(blocks * size)
    padded[: len(known)] = known
    decay = weight ** np.arange(1, size + 1)
    with np.errstate(over="ignore", invalid="ignore"):
        sums = np.cumsum(padded.reshape(blocks, size) / decay, axis=1)
        before = [0.0]
        for total in sums[:, -1].tolist():
            before.append(float(decay[-1]) * (before[-1] + total))
        averages = (decay * (np.array(before[:-1])[:, None] + sums)).ravel()[: len(known)]
        weights = (1 - weight ** np.arange(1, len(known) + 1)) / (1 - weight)
    found[finite] = averages / weights
    return found


def usual_limit(curves: Iterable[_Floats]) -> float:
    """Return the magnitude beyond which values do not extend the axis; infinity for any.

    It is a multiple of what half of the runs stay below, so one run that diverges does not flatten
    the others.

    Args:
        curves: the values of each run, float64 [N].
    """
    highest = []
    for values in curves:
        finite = np.abs(values[np.isfinite(values)])
        if finite.size:
            highest.append(float(np.quantile(finite, 0.95)))
    if not highest:
        return math.inf
    usual = sorted(highest)[(len(highest) - 1) // 2]
    return _BEYOND * usual if usual > 0 else math.inf
