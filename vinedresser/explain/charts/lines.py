"""Chart of several lines over the steps, each with a colour of its own."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

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
from vinedresser.explain.charts.line_chart import thinned
from vinedresser.explain.charts.standalone import WIDTH
from vinedresser.explain.charts.svg import Svg, chart, element, path_data
from vinedresser.explain.formatting import number

__all__ = ["Line", "legend_of", "line_of", "lines_chart"]

_ROOM = 8.0
_CHARACTER = 6.6


class Line(NamedTuple):
    """Numbers over the steps.

    Attributes:
        steps: int64 [N], ascending.
        values: float64 [N].
    """

    steps: NDArray[np.int64]
    values: NDArray[np.float64]


def line_of(points: Sequence[tuple[int, float]]) -> Line:
    """Return pairs of a step and a number as a line."""
    ordered = sorted(points, key=lambda point: point[0])
    return Line(
        np.array([step for step, _ in ordered], np.int64),
        np.array([value for _, value in ordered], np.float64),
    )


def lines_chart(
    label: str,
    lines: Mapping[str, Line],
    colours: Mapping[str, str],
    size: Size,
    extent: tuple[int, int],
) -> Svg:
    """Return a chart of lines.

    Args:
        label: accessible name of the chart.
        lines: the lines by name, each with at least one number.
        colours: their colours, such as ``#237e8f``.
        extent: first and last step of the axis.
    """
    values = np.concatenate([line.values for line in lines.values()])
    bottom = _ROOM + size.height
    frame = Frame(step_axis(extent, size), nice_scale(values, bottom, _ROOM), _ROOM, bottom)
    return chart(
        label,
        size.width,
        bottom + TICK_ROOM,
        *grid(frame, size, values=bool(np.isfinite(values).any())),
        plane(frame, extent),
        *(_curve(name, line, colours[name], frame) for name, line in lines.items()),
    )


def _curve(name: str, line: Line, colour: str, frame: Frame) -> Svg:
    steps, values = thinned(line.steps, line.values)
    x, y = frame.x(steps), frame.y(values)
    finite = np.isfinite(y)
    points: list[Svg] = []
    if finite.sum() == 1:
        points = [element("circle", cx=float(x[finite][0]), cy=float(y[finite][0]), r=2.6,
                          fill=colour)]  # fmt: skip
    bad = line.steps[~np.isfinite(line.values)]
    return element(
        "g",
        element("title", f"{name}: {number(float(line.values[-1]))} at step {line.steps[-1]:,}"),
        element("path", d=path_data(x, y), fill="none", stroke=colour, stroke_width=1.7),
        *points,
        *nonfinite_strokes(frame.x(bad), frame.bottom),
        data_name=name,
        data_last=repr(float(line.values[-1])),
    )


def legend_of(colours: Mapping[str, str]) -> list[Svg]:
    """Return a line and a name for each colour, as far as there is room; see `standalone`."""
    drawn: list[Svg] = []
    x = 0.0
    for name, colour in colours.items():
        width = 46.0 + _CHARACTER * len(name)
        if x + width > WIDTH - 40 and drawn:
            break
        stroke = {"fill": "none", "stroke": colour, "stroke_width": 1.7}
        drawn.append(element("path", d=f"M{x:g} 8H{x + 20:g}", **stroke))
        drawn.append(element("text", name, x=x + 26.0, y=12.0, class_="caption"))
        x += width
    return drawn
