"""Heat maps of the layers over the steps."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from vinedresser.explain.charts.axes import TICK_ROOM, Frame, Scale, plane
from vinedresser.explain.charts.layer_map import LayerMap
from vinedresser.explain.charts.markers import Marker, draw_markers, marker_room
from vinedresser.explain.charts.palette import (
    FIRST_LEVEL,
    LEVELS,
    NONE,
    NOT_FINITE,
    ZERO,
    colour_bar,
    indexed_png,
)
from vinedresser.explain.charts.svg import Svg, chart, element
from vinedresser.explain.formatting import decade, number

__all__ = ["colour_scale", "heat_map", "value_range"]

_RIGHT = 12.0
_SCALE_WIDTH = 260.0
_TALLEST_ROW, _LOWEST_ROW, _MOST_HEIGHT = 23.0, 2.5, 620.0
_LABEL_HEIGHT, _CHARACTER, _LONGEST_NAME = 11.0, 6.1, 34
_PIXELS_PER_TICK = 90.0
# Above this many decades, the lowest and highest percent of the cells do not extend the scale.
_MOST_DECADES = 12.0
# Rows at least this high are separated by thin lines.
_PARTED_FROM = 8.0


class _Frame(NamedTuple):
    """Area of the cells, in pixels."""

    left: float
    right: float
    top: float
    row: float
    bottom: float


def heat_map(
    data: LayerMap,
    markers: Sequence[Marker],
    width: float,
    label: str,
    *,
    ends: tuple[float, float] | None = None,
) -> Svg:
    """Return the map as SVG; the cells are an image with one pixel per cell.

    Args:
        markers: findings to mark.
        width: pixels, before the page scales it.
        label: accessible name of the chart.
        ends: logarithms at both ends of the colour scale; None: `value_range` of the data.
    """
    left = 14.0 + _CHARACTER * min(_LONGEST_NAME, max(map(len, data.names)))
    right = width - _RIGHT
    places = [_place(data, marker.step, left, right) for marker in markers]
    top = marker_room(places)
    row = min(_TALLEST_ROW, max(_LOWEST_ROW, _MOST_HEIGHT / len(data.names)))
    frame = _Frame(left, right, top, row, top + row * len(data.names))
    return chart(
        label,
        width,
        frame.bottom + TICK_ROOM,
        _cells(data, frame, value_range(data.log10) if ends is None else ends),
        *_row_labels(data, frame),
        *_step_labels(data, frame),
        _plane(data, frame),
        *draw_markers(markers, places, frame.bottom),
        kind="heat",
    )


def colour_scale(ends: tuple[float, float]) -> Svg:
    """Return the colour bar with its decades.

    Args:
        ends: logarithms at both ends.
    """
    low, high = ends
    scale = Scale(low, high, 22.0, _SCALE_WIDTH - 22.0, whole=True)
    ticks = [(tick.value, decade(round(tick.value))) for tick in scale.ticks(6)]
    if len(ticks) < 2:
        ticks = [(end, number(_power(end), 2)) for end in ends]
    return colour_bar(
        _SCALE_WIDTH,
        [(float(scale(value)), label) for value, label in ticks],
        data_low=f"{low:.9g}",
        data_high=f"{high:.9g}",
    )


def value_range(log10: NDArray[np.float64]) -> tuple[float, float]:
    """Return the logarithms at both ends of a colour scale.

    Args:
        log10: logarithms, float64 of any shape; those that are not finite do not count.
    """
    values = log10[np.isfinite(log10)]
    if not values.size:
        return -1.0, 1.0
    low, high = float(values.min()), float(values.max())
    if high - low > _MOST_DECADES:
        low, high = (float(end) for end in np.quantile(values, [0.01, 0.99]))
    return (low, high) if high - low > 1e-9 else (low - 0.5, high + 0.5)


def _cells(data: LayerMap, frame: _Frame, ends: tuple[float, float]) -> Svg:
    low, high = ends
    height = frame.bottom - frame.top
    box = {"x": frame.left, "y": frame.top, "width": frame.right - frame.left, "height": height}
    image = element(
        "image",
        href=indexed_png(_indices(data, low, high)),
        preserveAspectRatio="none",
        class_="cells",
        **box,
    )
    parted = "".join(
        f"M{frame.left:g} {frame.top + frame.row * count:g}H{frame.right:g}"
        for count in range(1, len(data.names))
    )
    lines = element("path", d=parted, class_="parting") if frame.row >= _PARTED_FROM else Svg()
    return element("g", element("rect", class_="nothing", **box), image, lines)


def _plane(data: LayerMap, frame: _Frame) -> Svg:
    columns = Scale(0.0, 1.0, frame.left, frame.right)
    area = Frame(columns, columns, frame.top, frame.bottom)
    starts = data.starts.tolist()
    return plane(area, (starts[0], data.last), starts)


def _indices(data: LayerMap, low: float, high: float) -> NDArray[np.uint8]:
    """Return palette indices, uint8 [L, C]."""
    finite = np.where(np.isfinite(data.log10), data.log10, low)
    level = np.clip(np.round((finite - low) / (high - low) * (LEVELS - 1)), 0, LEVELS - 1)
    indices = (FIRST_LEVEL + level).astype(np.uint8)
    indices[np.isneginf(data.log10)] = ZERO
    indices[np.isnan(data.log10)] = NOT_FINITE
    indices[~data.captured] = NONE
    return indices


def _row_labels(data: LayerMap, frame: _Frame) -> list[Svg]:
    """Return the names that fit, and a tooltip for every row."""
    every = math.ceil(_LABEL_HEIGHT / frame.row)
    drawn = []
    for count, (name, row) in enumerate(zip(data.names, data.log10, strict=True)):
        y = frame.top + frame.row * count
        if count % every == 0:
            place = {"x": frame.left - 8, "y": y + frame.row / 2 + 3.5}
            drawn.append(element("text", _shortened(name), class_="tick y", **place))
        title = element("title", f"{name}: {_summary(row)}")
        width = frame.right - frame.left
        drawn.append(
            element("rect", title, x=frame.left, y=y, width=width, height=frame.row, class_="hover")
        )
    return drawn


def _summary(row: NDArray[np.float64]) -> str:
    """Return the range of a row of logarithms, float64 [C], as text."""
    finite = row[np.isfinite(row)]
    if not finite.size:
        return "no finite value except zero"
    return f"{number(_power(finite.min()))} to {number(_power(finite.max()))}"


def _power(exponent: float) -> float:
    """Return ten to a power, limited to the largest float."""
    return math.pow(10.0, min(float(exponent), 308.25))


def _shortened(name: str) -> str:
    """Return a name that fits, shortened in the middle: its end identifies the parameter."""
    if len(name) <= _LONGEST_NAME:
        return name
    first, *rest = name.split(".")
    for start in range(1, len(rest)):
        short = f"{first}…{'.'.join(rest[start:])}"
        if len(short) <= _LONGEST_NAME:
            return short
    return f"…{name[1 - _LONGEST_NAME :]}"


def _step_labels(data: LayerMap, frame: _Frame) -> list[Svg]:
    first, last = float(data.starts[0]), float(data.last)
    most = int((frame.right - frame.left) / _PIXELS_PER_TICK)
    drawn: list[Svg] = []
    before, bottom = -math.inf, frame.bottom
    for tick in Scale(first, max(last, first + 1), 0, 1, whole=True).ticks(most):
        x = _place(data, tick.value, frame.left, frame.right)
        # Unevenly captured steps can bring two round numbers close together.
        if tick.value > last or x - before < _PIXELS_PER_TICK / 2:
            continue
        before = x
        drawn.append(element("line", x1=x, x2=x, y1=bottom, y2=bottom + 3, class_="axis"))
        drawn.append(element("text", tick.label, x=x, y=bottom + 15, class_="tick x"))
    return drawn


def _place(data: LayerMap, step: float, left: float, right: float) -> float:
    """Return the pixel of a step: columns are equally wide, whatever steps they contain."""
    count = len(data.starts)
    gap = float(data.starts[-1] - data.starts[-2]) if count > 1 else 1.0
    ends = np.append(data.starts, data.starts[-1] + gap)
    column = float(np.interp(step, ends, np.arange(count + 1))) + 0.5
    return left + min(column, count) / count * (right - left)
