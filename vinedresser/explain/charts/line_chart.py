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
    nonfinite_strokes,
    step_axis,
)
from vinedresser.explain.charts.curves import smoothed, thinned
from vinedresser.explain.charts.markers import Marker, draw_markers, marker_room
from vinedresser.explain.charts.scale import Scale, nice_scale
from vinedresser.explain.charts.svg import Svg, chart, element, path_data
from vinedresser.explain.formatting import number
from vinedresser.store.reading.series import Column

__all__ = ["has_trend", "line_chart"]

# Evaluations that are drawn with points; more are a line only.
_MOST_POINTS = 150


def line_chart(
    column: Column, markers: Sequence[Marker], size: Size, extent: tuple[int, int], label: str
) -> Svg:
    """Return a chart of one scalar in all its modes.

    Args:
        column: the scalar.
        markers: findings to mark.
        size: size of the chart.
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
    trend_steps, trend = smoothed(column.steps, _along(frame.y, column.values))
    if np.isfinite(column.values).sum() == 1:
        return _points(column, frame, "point train")
    line = path_data(frame.x(steps), frame.y(values))
    drawn = [element("path", d=line, class_="raw" if len(trend) else "trend")] if line else []
    if len(trend):
        heights = frame.y(10.0 ** np.minimum(trend, 308.0) if frame.y.log else trend)
        drawn.append(element("path", d=path_data(frame.x(trend_steps), heights), class_="trend"))
    return drawn


def _along(scale: Scale, values: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return values or logarithms, float64 [N], as `Scale.along`."""
    with np.errstate(divide="ignore", invalid="ignore"):
        return scale.along(values)


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
        middle = (frame.x.start + frame.x.end) / 2
        height = (frame.top + frame.bottom) / 2
        text = "no finite value" if len(bad) else "no value"
        drawn.append(element("text", text, x=middle, y=height, class_="empty"))
    return drawn
