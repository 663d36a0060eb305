"""Chart of one scalar over the steps: values, trend, evaluations and findings."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from vinedresser.explain.charts.axes import (
    TICK_ROOM,
    Frame,
    Size,
    grid,
    nice_scale,
    nonfinite_strokes,
    plane,
    step_axis,
)
from vinedresser.explain.charts.markers import Marker, draw_markers, marker_room
from vinedresser.explain.charts.svg import Svg, chart, element, path_data
from vinedresser.explain.formatting import number
from vinedresser.store.reading.series import Column

__all__ = ["has_trend", "line_chart", "smoothed", "thinned"]

# Evaluations that are drawn with points; more are a line only.
_MOST_POINTS = 150
_MOST_BINS = 400
# Points below which there is no trend.
_FEWEST_TO_SMOOTH = 30
# Standard deviation of the Gaussian, as a share of all steps.
_WIDTH = 0.015


def line_chart(
    column: Column, markers: Sequence[Marker], size: Size, extent: tuple[int, int], label: str
) -> Svg:
    """Return a chart of one scalar in all its modes.

    Args:
        markers: findings to mark.
        extent: first and last step of the axis; the same in all charts of a page.
        label: accessible name of the chart.
    """
    x = step_axis(extent, size)
    places = [float(x(marker.step)) for marker in markers]
    top = marker_room(places)
    bottom = top + size.height
    frame = Frame(x, nice_scale(column.values, bottom, top), top, bottom)
    return chart(
        label,
        size.width,
        bottom + TICK_ROOM,
        *grid(frame, size, values=bool(np.isfinite(column.values).any())),
        plane(frame, extent),
        *_training(column.of("train"), frame),
        *_evaluations(column.of("eval"), frame, "eval"),
        *_evaluations(column.of("predict"), frame, "predict"),
        *_not_finite(column, frame),
        *draw_markers(markers, places, bottom),
    )


def has_trend(column: Column) -> bool:
    """Return whether there are enough training values to draw a trend."""
    train = column.of("train")
    return len(smoothed(train.steps, train.values)[0]) > 0


def _training(column: Column, frame: Frame) -> list[Svg]:
    """Return the values (of many, their outline) and the trend."""
    steps, values = thinned(column.steps, column.values)
    trend_steps, trend = smoothed(column.steps, frame.y.along(column.values))
    if np.isfinite(column.values).sum() == 1:
        return _points(column, frame, "point train")
    line = path_data(frame.x(steps), frame.y(values))
    drawn = [element("path", d=line, class_="raw" if len(trend) else "trend")] if line else []
    if len(trend):
        heights = frame.y(10.0 ** np.minimum(trend, 308.0) if frame.y.log else trend)
        drawn.append(element("path", d=path_data(frame.x(trend_steps), heights), class_="trend"))
    return drawn


def _evaluations(column: Column, frame: Frame, kind: str) -> list[Svg]:
    steps, values = thinned(column.steps, column.values)
    line = path_data(frame.x(steps), frame.y(values))
    if not line:
        return []
    points = _points(column, frame, f"point {kind}") if len(column) <= _MOST_POINTS else []
    return [element("path", d=line, class_=kind), *points]


def _points(column: Column, frame: Frame, kind: str) -> list[Svg]:
    drawn = []
    for step, value in zip(column.steps.tolist(), column.values.tolist(), strict=True):
        if not np.isfinite(value):
            continue
        title = element("title", f"step {step:,}: {number(value)}")
        x, y = float(frame.x(step)), float(frame.y(value))
        drawn.append(element("circle", title, cx=x, cy=y, r=2.6, class_=kind))
    return drawn


def _not_finite(column: Column, frame: Frame) -> list[Svg]:
    """Return red strokes for values that are not finite, and a text if no value is finite."""
    bad = column.steps[~np.isfinite(column.values)]
    drawn = nonfinite_strokes(frame.x(bad), frame.bottom)
    if len(bad) == len(column):
        drawn.append(frame.notice("no finite value" if len(bad) else "no value"))
    return drawn


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
