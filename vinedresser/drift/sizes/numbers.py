"""How far numbers have moved: their location, their spread, their tails, and missing ones."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from vinedresser.drift.distances import SortedSample
from vinedresser.drift.evidence.bins import BINS
from vinedresser.drift.sizes.change import CERTAIN, Change, missing_change, share_change, within

# A grid of deviations in standard deviations, fine in the middle and coarse far away, from which
# quantiles are read: asinh of them, in steps of this width.
_CELLS, _WIDTH = 64, 0.2
# Deviations beyond this count as this.
_MOST = 1e6
# Standard deviation of a light-tailed distribution, at most, in those of a normal distribution
# with the same quartiles: above, the median has a smaller error than the mean.
_LIGHT = 1.2533
# Share of one value above which numbers are discrete, so that their quartiles say little.
_TIED = 0.05
# A change of the distribution is named only if it is so much clearer than one of its location or
# spread, with which it comes.
_CLEARER = 1.7
# Bins at either end that are tails: beyond the quantiles 1/16 and 15/16 of the baseline.
_TAILS = 4
# Rows that say little of a spread or a distribution.
_FEW = 10
_ROWS, _MISSING, _OTHERS, _SUM, _SQUARES = range(5)


class NumberSizes:
    """Sums from which changes of a stream of numbers are described.

    Args:
        column: name of the column.
        sample: its values in the baseline, float64 [rows]; NaN is missing.
        stream: name of the stream within the column; "" if that is the only one.
    """

    def __init__(self, column: str, sample: NDArray[np.float64], stream: str = "") -> None:
        self._column, self._name = column, f"{column}, {stream}" if stream else column
        known = sample[~np.isnan(sample)]
        values = SortedSample(known if len(known) else np.zeros(1))
        self.middle, self.scale = values.quantile(0.5), values.spread
        self.discrete = bool(
            np.unique(values.values, return_counts=True)[1].max() > _TIED * len(known)
        )
        self.constant: float | None = None
        """The only value of the baseline; NaN if it has none, None if it has several."""
        if self.scale == 0:
            self.constant, self.scale = self.middle if len(known) else math.nan, 1.0
        deviations = self._deviations(known)
        deviation = float(deviations.std()) if len(known) else 0.0
        self.kurtosis = 3.0
        if deviation > 0:
            fourth = float(((deviations - deviations.mean()) ** 4).mean())
            # At least that of a uniform distribution; that of two values would be exact.
            self.kurtosis = max(fourth / deviation**4, 1.8)
        self.light = self.discrete or deviation <= _LIGHT
        self.unit = self.scale * (deviation if self.light and deviation > 0 else 1.0)
        """What a standard deviation of the baseline is, in units of the values."""
        self._unit_error = _log_error(self.light, self.kurtosis) / math.sqrt(max(len(known), 1))
        self._two_valued = len(np.unique(known)) <= 2
        self._baseline = self.sums(sample)

    @property
    def size(self) -> int:
        """Number of sums."""
        return 5 + _CELLS

    def sums(self, values: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return the sums over values, float64 [size]."""
        known = values[~np.isnan(values)]
        deviations = self._deviations(known)
        cells = np.floor(np.arcsinh(deviations) / _WIDTH).astype(np.int64) + _CELLS // 2
        return np.concatenate(
            [
                [len(values), len(values) - len(known), (deviations != 0).sum()],
                [deviations.sum(), (deviations**2).sum()],
                np.bincount(cells.clip(0, _CELLS - 1), minlength=_CELLS),
            ]
        )

    def change(
        self,
        before: NDArray[np.float64],
        after: NDArray[np.float64],
        bins: tuple[NDArray[np.float64], NDArray[np.float64]],
    ) -> Change:
        """Return the clearest change.

        Args:
            before: sums over the windows before the change, without the baseline.
            after: sums since the change.
            bins: values (nearly independent ones) in each bin before the change, with the
                baseline's, and since; float64 [BINS] each.
        """
        before = before + self._baseline
        counts = float(bins[0].sum()), max(float(bins[1].sum()), 1.0)
        shares = [float(one[_MISSING] / max(one[_ROWS], 1)) for one in (before, after)]
        missing = missing_change(self._column, (shares[0], counts[0]), (shares[1], counts[1]))
        if min(before[_ROWS] - before[_MISSING], after[_ROWS] - after[_MISSING]) < 1:
            return missing
        # Of nearly independent rows with a value.
        known = [n * (1 - share) for n, share in zip(counts, shares, strict=True)]
        found = [missing]
        if self.constant is not None:
            found.append(self._of_constant(before, after, known))
        else:
            light = self.light and (self.discrete or _is_light(after))
            found.append(self._location(before, after, known, light))
            if not self._two_valued and known[1] >= _FEW:
                found.append(self._spread(before, after, known, light))
        plain = max(found, key=lambda one: one.errors)
        if self.constant is not None or self._two_valued or known[1] < _FEW:
            return plain
        shape = max((self._tails(*bins), self._distribution(*bins)), key=lambda one: one.errors)
        return shape if shape.errors > _CLEARER * plain.errors else plain

    def _deviations(self, known: NDArray[np.float64]) -> NDArray[np.float64]:
        # Of values beyond all bounds, only that they are matters.
        with np.errstate(over="ignore"):
            deviations = (known - self.middle) / self.scale
        return np.asarray(deviations.clip(-_MOST, _MOST))

    def _of_constant(
        self, before: NDArray[np.float64], after: NDArray[np.float64], rows: list[float]
    ) -> Change:
        shares = [float(one[_OTHERS] / (one[_ROWS] - one[_MISSING])) for one in (before, after)]
        words = (f"{self._name}: ", f" of the values are not {self.middle:.4g}")
        return share_change("constant", words, (shares[0], rows[0]), (shares[1], rows[1]))

    def _location(
        self,
        before: NDArray[np.float64],
        after: NDArray[np.float64],
        rows: list[float],
        light: bool,
    ) -> Change:
        """Return the change of the mean or, with heavy tails, of the median."""
        if light:
            name, factor = "mean", 1.0
            (was, first), (now, second) = _mean(before), _mean(after)
        else:
            name, factor = "median", _LIGHT
            was, now = _quantile(before, 0.5), _quantile(after, 0.5)
            first, second = _spread(before), _spread(after)
        # In standard deviations of the baseline.
        unit = self.unit / self.scale
        far = (now - was) / unit
        error = factor * math.sqrt(first**2 / rows[0] + second**2 / rows[1]) / unit
        # The unit is not known exactly, either.
        error = math.hypot(error, far * self._unit_error)
        same = factor * first * math.sqrt(1 / rows[0] + 1 / rows[1]) / unit
        way = "higher" if far > 0 else "lower"
        old, new = (self.middle + self.scale * one for one in (was, now))
        text = (
            f"{self._name}: {name} {new:.4g}, {old:.4g} before "
            f"({within(abs(far), CERTAIN * error)} standard deviations {way})"
        )
        errors = abs(far) / max(same, 1e-9)
        unit_name = "standard deviations"
        return Change(name, far, CERTAIN * error, unit_name, old, new, text, errors)

    def _spread(
        self,
        before: NDArray[np.float64],
        after: NDArray[np.float64],
        rows: list[float],
        light: bool,
    ) -> Change:
        """Return the change of the standard deviation or, with heavy tails, of the quartiles."""
        if light:
            was, now = _mean(before)[1], _mean(after)[1]
        else:
            was, now = _spread(before), _spread(after)
        error = _log_error(light, self.kurtosis) * math.sqrt(1 / rows[0] + 1 / rows[1])
        ratio = now / max(was, 1e-9)
        far = CERTAIN * error * ratio
        old, new = self.scale * was, self.scale * now
        text = f"{self._name}: spread {new:.4g}, {old:.4g} before ({within(ratio, far)} times)"
        errors = abs(math.log(max(ratio, 1e-9))) / error
        return Change("spread", ratio, far, "times", old, new, text, errors)

    def _tails(self, before: NDArray[np.float64], after: NDArray[np.float64]) -> Change:
        shares = [
            float(one[:_TAILS].sum() + one[BINS - _TAILS :].sum()) / max(one.sum(), 1.0)
            for one in (before, after)
        ]
        words = (f"{self._name}: ", " of the values are in its tails")
        rows = [max(float(one.sum()), 1.0) for one in (before, after)]
        return share_change("tails", words, (shares[0], rows[0]), (shares[1], rows[1]))

    def _distribution(self, before: NDArray[np.float64], after: NDArray[np.float64]) -> Change:
        rows = [max(float(one.sum()), 1.0) for one in (before, after)]
        shares = [np.cumsum(one) / n for one, n in zip((before, after), rows, strict=True)]
        far = float(abs(shares[1] - shares[0]).max())
        # Kolmogorov's distribution has a mean of 0.87.
        error = math.sqrt(1 / rows[0] + 1 / rows[1])
        text = (
            f"{self._name}: another distribution (largest difference of shares "
            f"{100 * far:.1f} ± {100 * CERTAIN * error / 2:.1f} points)"
        )
        unit = "share of rows"
        uncertainty = CERTAIN * error / 2
        return Change("distribution", far, uncertainty, unit, 0.0, far, text, far / (0.87 * error))


def _log_error(light: bool, kurtosis: float) -> float:
    """Return the error of the logarithm of a spread, times the root of the number of rows.

    Of a standard deviation, or of the distance of the quartiles of a normal distribution.
    """
    return math.sqrt((kurtosis - 1) / 4) if light else 1.17


def _mean(sums: NDArray[np.float64]) -> tuple[float, float]:
    """Return mean and standard deviation of the deviations."""
    rows = sums[_ROWS] - sums[_MISSING]
    mean = sums[_SUM] / rows
    return float(mean), math.sqrt(max(sums[_SQUARES] / rows - mean**2, 0.0))


def _quantile(sums: NDArray[np.float64], share: float) -> float:
    """Return a quantile of the deviations, interpolated within its cell."""
    cells = sums[5:]
    below = np.cumsum(cells)
    at = int(np.searchsorted(below, share * below[-1]))
    inside = (share * below[-1] - (below[at] - cells[at])) / max(cells[at], 1)
    return math.sinh(_WIDTH * (at - _CELLS // 2 + inside))


def _spread(sums: NDArray[np.float64]) -> float:
    """Return the standard deviation of a normal distribution with the same quartiles."""
    return max(_quantile(sums, 0.75) - _quantile(sums, 0.25), 1e-9) / 1.349


def _is_light(sums: NDArray[np.float64]) -> bool:
    return _mean(sums)[1] <= _LIGHT * _spread(sums)
