"""Axes of charts: conversion of values to pixels, round ticks, plot area, grid and labels."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from vinedresser.explain.charts.svg import Svg, element
from vinedresser.explain.formatting import MINUS, decade

__all__ = [
    "TICK_ROOM",
    "Frame",
    "Scale",
    "Size",
    "Tick",
    "grid",
    "nice_scale",
    "nonfinite_strokes",
    "plane",
    "step_axis",
]

# Beyond these, a span or a margin would overflow.
_SMALLEST, _LARGEST = 5e-324, 1e307
# Ratios above which the axis is logarithmic: of the 90th to the 10th percentile, and of the maximum
# to the median.
_LOG_FROM_SPREAD, _LOG_FROM_PEAK = 50.0, 1000.0
# Pixels below the plot for the labels of the steps.
TICK_ROOM = 22.0
_PIXELS_PER_X_TICK = 90.0
_PIXELS_PER_Y_TICK = 34.0


@dataclass(frozen=True)
class Tick:
    """A labelled position.

    Attributes:
        value: value in the units of the data.
        label: text.
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
        log: logarithmic; requires positive ``low`` and ``high``.
        whole: label whole numbers only.
    """

    low: float
    high: float
    start: float
    end: float
    log: bool = False
    whole: bool = False

    def __call__(self, values: NDArray[np.number] | float) -> NDArray[np.float64]:
        """Return pixels, float64, shape as given; NaN for values that the axis cannot show."""
        with np.errstate(divide="ignore", invalid="ignore"):
            place = self.along(np.asarray(values, dtype=np.float64))
            low, high = self.along(np.array([self.low, self.high]))
            pixels = self.start + (place - low) / (high - low) * (self.end - self.start)
        return np.where(np.isfinite(pixels), pixels, np.nan)

    def along(self, values: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return values, or logarithms on a logarithmic axis; float64, shape as given."""
        with np.errstate(divide="ignore", invalid="ignore"):
            return np.log10(values) if self.log else values

    def ticks(self, most: int) -> list[Tick]:
        """Return round values from ``low`` to ``high``, at most about ``most``."""
        return self._log_ticks(most) if self.log else self._linear_ticks(most)

    def _linear_ticks(self, most: int) -> list[Tick]:
        # The fraction of a subnormal span may be zero.
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
    """Return an axis that shows all finite values.

    It is logarithmic if the values are positive and span decades.

    Args:
        values: float64, any shape.
        start: pixel of the low end.
        end: pixel of the high end.
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
    # Margins of subnormal numbers would be zero.
    span = max(high - low or abs(high) or 1.0, 1e-300)
    # Include zero if it is near: losses and accuracies are read relative to it.
    bottom = 0.0 if 0 <= low < 0.5 * high else low - 0.06 * span
    return Scale(bottom, high + 0.06 * span, start, end)


def _spreads_over_decades(values: NDArray[np.float64]) -> bool:
    """Return whether positive values, float64 of any shape, need a logarithmic axis."""
    first, middle, ninth = np.quantile(np.log10(values), [0.1, 0.5, 0.9])
    peak = np.log10(values.max()) - middle
    return bool(ninth - first >= np.log10(_LOG_FROM_SPREAD) or peak >= np.log10(_LOG_FROM_PEAK))


def _round_step(raw: float) -> float:
    """Return the next of 1, 2, 5, 10, 20, … at or above a positive number."""
    power = 10.0 ** math.floor(math.log10(raw))
    return next(factor * power for factor in (1.0, 2.0, 5.0, 10.0) if factor * power >= raw * 0.999)


class Size(NamedTuple):
    """Size of a chart in pixels, before the page scales it; markers add to its height."""

    width: float
    height: float
    left: float = 52.0
    right: float = 12.0


class Frame(NamedTuple):
    """Plot area of a chart."""

    x: Scale
    y: Scale
    top: float
    bottom: float

    def notice(self, text: str) -> Svg:
        """Return a text in the middle of the area."""
        middle = {"x": (self.x.start + self.x.end) / 2, "y": (self.top + self.bottom) / 2}
        return element("text", text, **middle, class_="empty")


def step_axis(extent: tuple[float, float], size: Size) -> Scale:
    """Return the horizontal axis.

    Args:
        extent: first and last step.
    """
    first, last = extent
    room = 0.5 if first == last else 0.0
    return Scale(first - room, last + room, size.left, size.width - size.right, whole=True)


def grid(frame: Frame, size: Size, *, values: bool) -> list[Svg]:
    """Return the axes with their labels.

    Args:
        frame: the plot area.
        values: label the vertical axis.
    """
    right = size.width - size.right
    drawn = []
    for tick in frame.y.ticks(int(size.height / _PIXELS_PER_Y_TICK)) if values else ():
        y = float(frame.y(tick.value))
        drawn.append(element("line", x1=size.left, x2=right, y1=y, y2=y, class_="grid"))
        drawn.append(element("text", tick.label, x=size.left - 8, y=y + 3.5, class_="tick y"))
    bottom = frame.bottom
    drawn.append(element("line", x1=size.left, x2=right, y1=bottom, y2=bottom, class_="axis"))
    for tick in frame.x.ticks(int((right - size.left) / _PIXELS_PER_X_TICK)):
        x = float(frame.x(tick.value))
        drawn.append(element("line", x1=x, x2=x, y1=bottom, y2=bottom + 3, class_="axis"))
        drawn.append(element("text", tick.label, x=x, y=bottom + 15, class_="tick x"))
    return drawn


def plane(frame: Frame, extent: tuple[float, float], starts: Sequence[int] | None = None) -> Svg:
    """Return the invisible plot area; from it, a page places its cursor at a step.

    Args:
        extent: first and last step.
        starts: first step of each column if the area has columns of equal width; None: it is
            linear.
    """
    return element(
        "rect",
        class_="plane",
        fill="none",
        x=frame.x.start,
        y=frame.top,
        width=frame.x.end - frame.x.start,
        height=frame.bottom - frame.top,
        data_first=int(extent[0]),
        data_last=int(extent[1]),
        data_starts=None if starts is None else " ".join(map(str, starts)),
    )


def nonfinite_strokes(x: NDArray[np.float64], bottom: float) -> list[Svg]:
    """Return a short red stroke at the foot of the plot for each step without a finite value.

    Args:
        x: places of the steps, float64 [K], pixels.
        bottom: bottom of the plot, pixels.
    """
    strokes = "".join(f"M{place:g} {bottom - 7:g}v7" for place in np.unique(np.round(x)))
    return [element("path", d=strokes, class_="nonfinite")] if strokes else []
