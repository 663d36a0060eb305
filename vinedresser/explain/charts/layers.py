"""A statistic of every layer over the steps, as data and as a chart."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from vinedresser.explain.charts.axes import (
    TICK_ROOM,
    Frame,
    Scale,
    Size,
    grid,
    nice_scale,
    step_axis,
)
from vinedresser.explain.charts.layer_map import ratio_columns
from vinedresser.explain.charts.markers import Marker, draw_markers, marker_room
from vinedresser.explain.charts.svg import Svg, chart, element, path_data
from vinedresser.explain.formatting import number
from vinedresser.store.reading.reader import Run

__all__ = [
    "MOST_LINES",
    "Band",
    "LayerSeries",
    "extremes",
    "layer_lines",
    "layer_statistic",
    "update_ratios",
]

_Points = tuple[str, NDArray[np.int64], NDArray[np.float64]]

_MOST_STEPS = 120
MOST_LINES = 12
# Decades of a logarithmic axis; smaller values are drawn at its lower end.
_MOST_DECADES = 14.0


@dataclass(frozen=True, eq=False)
class LayerSeries:
    """A statistic of layers over the steps.

    Shape legend: L layers, N kept steps.

    Attributes:
        names: names of the layers or parameters [L], in model order.
        steps: int64 [N], ascending; evenly spread among the captured steps.
        values: float64 [L, N]; NaN where not captured or not finite.
        captured: number of captured steps.
        broken: number of captured values at kept steps that are not finite.
    """

    names: tuple[str, ...]
    steps: NDArray[np.int64]
    values: NDArray[np.float64]
    captured: int
    broken: int


def update_ratios(run: Run) -> LayerSeries | None:
    """Return the ratios of `ratio_columns`; None if not captured."""
    return _series([(column.name, column.steps, column.values) for column in ratio_columns(run)])


def layer_statistic(run: Run, reduction: str, collection: str) -> LayerSeries | None:
    """Return a statistic of each tensor of a collection, for training steps of rank 0.

    Args:
        reduction: name of the statistic, such as "zero_share".
        collection: name of the collection, such as "activations".

    Returns:
        The series, with names without their kind; None if not captured.
    """
    columns = run.reductions(reduction, collection, mode="train")
    return _series(
        [
            (column.name.partition("/")[2], column.steps, column.values)
            for column in columns.values()
        ]
    )


def _series(points: Sequence[_Points]) -> LayerSeries | None:
    points = [point for point in points if len(point[1])]
    if not points:
        return None
    captured = np.unique(np.concatenate([steps for _, steps, _ in points]))
    chosen = np.linspace(0, len(captured) - 1, min(len(captured), _MOST_STEPS)).round()
    kept = captured[chosen.astype(np.intp)]
    values = np.full((len(points), len(kept)), np.nan)
    broken = 0
    for row, (_, steps, own) in zip(values, points, strict=True):
        places = np.searchsorted(steps, kept)
        there = places < len(steps)
        there[there] = steps[places[there]] == kept[there]
        found = own[places[there]]
        broken += int(np.count_nonzero(~np.isfinite(found)))
        row[there] = np.where(np.isfinite(found), found, np.nan)
    return LayerSeries(tuple(name for name, _, _ in points), kept, values, len(captured), broken)


@dataclass(frozen=True)
class Band:
    """Range of the values of healthy trainings.

    Attributes:
        low: lower end.
        high: upper end.
        label: label in the chart.
    """

    low: float
    high: float
    label: str


def layer_lines(
    data: LayerSeries,
    markers: Sequence[Marker],
    size: Size,
    extent: tuple[int, int],
    label: str,
    *,
    log: bool = False,
    band: Band | None = None,
) -> Svg:
    """Return a chart of all layers; of many, only some have lines.

    Args:
        markers: findings to mark.
        extent: first and last step of the axis.
        label: accessible name of the chart.
        log: use a logarithmic axis, which leaves out values that are not positive.
        band: range to shade.
    """
    x = step_axis(extent, size)
    places = [float(x(marker.step)) for marker in markers]
    top = marker_room(places)
    values = np.where(data.values > 0, data.values, np.nan) if log else data.values
    frame = Frame(x, _value_axis(values, band, log, top + size.height, top), top, top + size.height)
    shown = bool(np.isfinite(values).any())
    return chart(
        label,
        size.width,
        frame.bottom + TICK_ROOM,
        *_band(band, frame, size),
        *grid(frame, size, values=shown),
        *_envelope(data, values, frame),
        *_lines(data, values, frame),
        *([] if shown else [frame.notice("no value fits the axis")]),
        *draw_markers(markers, places, frame.bottom),
        kind="layers",
    )


def extremes(data: LayerSeries) -> tuple[int, int] | None:
    """Return the layers with the lowest and highest median; None if fewer than two have one."""
    medians = np.array([_median(row) for row in data.values])
    if np.isfinite(medians).sum() < 2:
        return None
    return int(np.nanargmin(medians)), int(np.nanargmax(medians))


def _median(row: NDArray[np.float64]) -> float:
    """Return the median of the finite values of a row, float64 [N]; NaN if there are none."""
    finite = row[np.isfinite(row)]
    return float(np.median(finite)) if finite.size else math.nan


def _value_axis(
    values: NDArray[np.float64], band: Band | None, log: bool, start: float, end: float
) -> Scale:
    """Return the axis for values, float64 [L, N], and the band."""
    if not log:
        return nice_scale(values, start, end)
    finite = values[np.isfinite(values)]
    # In logarithms, since a margin near the largest float would overflow.
    ends = [math.log10(finite.min()), math.log10(finite.max())] if finite.size else []
    ends += [math.log10(band.low), math.log10(band.high)] if band is not None else []
    low, high = min(ends, default=-1.0), max(ends, default=0.0)
    low, high = max(low, high - _MOST_DECADES, -306.0), max(high, -305.0)
    margin = max(0.05 * (high - low), 0.1)
    return Scale(
        10.0 ** max(low - margin, -307), 10.0 ** min(high + margin, 307), start, end, log=True
    )


def _band(band: Band | None, frame: Frame, size: Size) -> list[Svg]:
    if band is None:
        return []
    top, bottom = (float(frame.y(value)) for value in (band.high, band.low))
    width = size.width - size.right - size.left
    box = {"x": size.left, "y": top, "width": width, "height": bottom - top}
    place = {"x": size.width - size.right - 6, "y": top + 13}
    return [
        element("rect", element("title", band.label), class_="band", **box),
        element("text", band.label, class_="band y", **place),
    ]


def _height(frame: Frame, values: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return pixels, float64, shape as given; values beyond the axis lie at its end."""
    return np.clip(frame.y(values), frame.top, frame.bottom)


def _envelope(data: LayerSeries, values: NDArray[np.float64], frame: Frame) -> list[Svg]:
    """Return the area between the lowest and highest of all layers; values: float64 [L, N]."""
    seen = np.isfinite(values).any(axis=0)
    if len(values) < 3 or seen.sum() < 2:
        return []
    x = frame.x(data.steps[seen])
    low = _height(frame, np.nanmin(values[:, seen], axis=0))
    high = _height(frame, np.nanmax(values[:, seen], axis=0))
    outline = path_data(np.concatenate([x, x[::-1]]), np.concatenate([high, low[::-1]]))
    title = element("title", f"between the lowest and the highest of {len(values)} layers")
    return [element("path", title, d=f"{outline}Z", class_="envelope")]


def _lines(data: LayerSeries, values: NDArray[np.float64], frame: Frame) -> list[Svg]:
    """Return the lines of some layers and of the extremes; values: float64 [L, N]."""
    most = min(len(values), MOST_LINES)
    chosen = {int(row) for row in np.linspace(0, len(values) - 1, most).round()}
    ends = extremes(data)
    kinds = {} if ends is None else {ends[0]: "layer lowest", ends[1]: "layer highest"}
    drawn = []
    # The extremes last, on top of the others.
    for row in [*sorted(chosen - set(kinds)), *kinds]:
        kind = kinds.get(row, "layer")
        title = element("title", f"{data.names[row]}: {_summary(values[row])}")
        x, y = frame.x(data.steps), _height(frame, values[row])
        finite = np.isfinite(y)
        if finite.sum() == 1:
            place = {"cx": float(x[finite][0]), "cy": float(y[finite][0])}
            drawn.append(element("circle", title, r=3, class_=f"point {kind}", **place))
        elif finite.any():
            # Layers captured at different steps have gaps at the steps of the others.
            # If no two neighbours are finite, no line would be visible otherwise.
            joined = not (finite[1:] & finite[:-1]).any()
            line = path_data(x[finite], y[finite]) if joined else path_data(x, y)
            drawn.append(element("path", title, d=line, class_=kind))
    return drawn


def _summary(row: NDArray[np.float64]) -> str:
    """Return the range of the finite values of a row, float64 [N], as text."""
    finite = row[np.isfinite(row)]
    if not finite.size:
        return "no value"
    return f"{number(float(finite.min()), 2)} to {number(float(finite.max()), 2)}"
