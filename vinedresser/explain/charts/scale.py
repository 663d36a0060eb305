"""From values to pixels, and round numbers along the way."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

__all__ = ["MINUS", "Scale", "Tick", "decade", "nice_scale"]

MINUS = "\N{MINUS SIGN}"
_SUPERSCRIPTS = str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹")
# Beyond these, a span or a margin would not be a float any more.
_SMALLEST, _LARGEST = 5e-324, 1e307
# From these ratios on a linear axis would show the largest values only: between the ninth and the
# first tenth of the values, and between the largest and the middle one.
_LOG_FROM_SPREAD, _LOG_FROM_PEAK = 50.0, 1000.0


@dataclass(frozen=True)
class Tick:
    """A labelled position.

    Attributes:
        value: in the units of the data.
        label: as it is written.
    """

    value: float
    label: str


@dataclass(frozen=True)
class Scale:
    """An axis: linear, or logarithmic to base 10.

    Attributes:
        low: value at ``start``.
        high: value at ``end``.
        start: pixels.
        end: pixels; smaller than ``start`` on an axis that points up.
        log: whether it is logarithmic; ``low`` and ``high`` are positive then.
        whole: whether only whole numbers are labelled.
    """

    low: float
    high: float
    start: float
    end: float
    log: bool = False
    whole: bool = False

    def __call__(self, values: NDArray[np.number] | float) -> NDArray[np.float64]:
        """Return pixels; shape as given. What has no place on the axis becomes NaN."""
        with np.errstate(divide="ignore", invalid="ignore"):
            place = self.along(np.asarray(values, dtype=np.float64))
            low, high = self.along(np.array([self.low, self.high]))
            pixels = self.start + (place - low) / (high - low) * (self.end - self.start)
        return np.where(np.isfinite(pixels), pixels, np.nan)

    def along(self, values: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return values in the domain in which the axis is linear; shape as given."""
        return np.log10(values) if self.log else values

    def ticks(self, most: int) -> list[Tick]:
        """Return round values from ``low`` to ``high``, at most about ``most``."""
        return self._log_ticks(most) if self.log else self._linear_ticks(most)

    def _linear_ticks(self, most: int) -> list[Tick]:
        # A span of subnormal numbers may have no fraction.
        step = _round_step(max((self.high - self.low) / max(most, 1), 1e-300))
        if self.whole:
            step = max(step, 1.0)
        first, last = math.ceil(self.low / step - 1e-9), math.floor(self.high / step + 1e-9)
        decimals = max(0, -math.floor(math.log10(step) + 1e-9))
        ticks = []
        for count in range(first, last + 1):
            value = count * step
            small = decimals <= 4 and abs(value) < 1e6
            label = f"{value:,.{decimals}f}" if small or self.whole else f"{value:.4g}"
            ticks.append(Tick(value, label.replace("-", MINUS)))
        return ticks

    def _log_ticks(self, most: int) -> list[Tick]:
        first, last = math.ceil(math.log10(self.low)), math.floor(math.log10(self.high))
        stride = max(1, math.ceil((last - first + 1) / max(most, 1)))
        return [Tick(10.0**power, decade(power)) for power in range(first, last + 1, stride)]


def nice_scale(values: NDArray[np.float64], start: float, end: float) -> Scale:
    """Return an axis on which all finite values have room.

    It is logarithmic when the values are positive and spread over decades.

    Args:
        values: float64, any shape.
        start: pixels of its low end.
        end: pixels of its high end.
    """
    finite = np.clip(values[np.isfinite(values)], -_LARGEST / 100, _LARGEST / 100)
    if not finite.size:
        return Scale(0.0, 1.0, start, end)
    low, high = float(finite.min()), float(finite.max())
    if low > 0 and _spreads_over_decades(finite):
        margin = 10 ** (0.05 * (math.log10(high) - math.log10(low)))
        return Scale(
            max(low / margin, _SMALLEST), min(high * margin, _LARGEST), start, end, log=True
        )
    # Margins of subnormal numbers would be nothing.
    span = max(high - low or abs(high) or 1.0, 1e-300)
    # Zero belongs to the picture when it is near: losses and accuracies are read against it.
    bottom = 0.0 if 0 <= low < 0.5 * high else low - 0.06 * span
    return Scale(bottom, high + 0.06 * span, start, end)


def _spreads_over_decades(values: NDArray[np.float64]) -> bool:
    first, middle, ninth = np.quantile(np.log10(values), [0.1, 0.5, 0.9])
    peak = np.log10(values.max()) - middle
    return bool(ninth - first >= np.log10(_LOG_FROM_SPREAD) or peak >= np.log10(_LOG_FROM_PEAK))


def decade(power: int) -> str:
    """Return a power of ten as it is written, such as 10⁻³."""
    if power in (0, 1):
        return str(10**power)
    return "10" + str(power).translate(_SUPERSCRIPTS)


def _round_step(raw: float) -> float:
    """Return the next of 1, 2, 5, 10, 20, … at or above a positive number."""
    power = 10.0 ** math.floor(math.log10(raw))
    return next(factor * power for factor in (1.0, 2.0, 5.0, 10.0) if factor * power >= raw * 0.999)
