"""Charts of one scalar of several runs, with marks where rules fired."""

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
    step_axis,
)
from vinedresser.explain.charts.figure import Figure
from vinedresser.explain.charts.line_chart import smoothed, thinned
from vinedresser.explain.charts.svg import Svg, chart, element, path_data
from vinedresser.explain.comparison.compared_run import ComparedRun
from vinedresser.explain.comparison.comparing import Comparison
from vinedresser.explain.comparison.overlay import usual_limit
from vinedresser.explain.formatting import number
from vinedresser.explain.reports.timeline import severity_sign
from vinedresser.store.reading.series import Column

__all__ = ["curve_figures", "system_figures"]

_SIZE = Size(450, 190)
_MOST_FIGURES = 10
# Pixels above the plot.
_ROOM = 8.0
# Points of an evaluation that are drawn.
_MOST_POINTS = 60


def curve_figures(comparison: Comparison) -> list[Figure]:
    """Return a chart for each scalar of at least two of the runs drawn: the metric first.

    Training values are drawn as their trend (`smoothed`) if there are enough of them.
    """
    goal = comparison.goal.metric if comparison.goal else ""
    counts: dict[str, int] = {}
    for run in comparison.drawn:
        for name in run.scalars:
            counts[name] = counts.get(name, 0) + 1
    names = [name for name, found in counts.items() if found > 1]
    names.sort(key=lambda name: (name != goal, not name.endswith("/loss"), -counts[name]))
    last = max(
        (int(run.scalars[n].steps[-1]) for run in comparison.drawn for n in run.scalars), default=0
    )
    drawn = comparison.drawn
    return [
        _figure(drawn, name, last, [run.scalars.get(name) for run in drawn])
        for name in names[:_MOST_FIGURES]
    ]


def system_figures(comparison: Comparison) -> list[Figure]:
    """Return a chart of the load of the machine of the runs drawn, for each share of at least two.

    Steps are those last completed at each time.
    """
    drawn = comparison.drawn
    loads = [run.run.system() for run in drawn]
    names = dict.fromkeys(name for load in loads for name in load if name.endswith("_percentage"))
    last = max((int(one.steps[-1]) for load in loads for one in load.values()), default=0)
    found = {name: [load.get(name) for load in loads] for name in names}
    return [
        _figure(drawn, name, last, columns)
        for name, columns in [*found.items()][:_MOST_FIGURES]
        if len(drawn) - columns.count(None) > 1
    ]


def _figure(
    runs: Sequence[ComparedRun], name: str, last: int, each: Sequence[Column | None]
) -> Figure:
    columns = {place: column for place, column in enumerate(each) if column is not None}
    shown = np.concatenate([_lines_of(column)[1] for column in columns.values()])
    limit = usual_limit(column.values for column in columns.values())
    beyond = np.abs(shown) > limit
    bottom = _ROOM + _SIZE.height
    scale = nice_scale(np.where(beyond, np.nan, shown), bottom, _ROOM)
    frame = Frame(step_axis((0, last), _SIZE), scale, _ROOM, bottom)
    svg = chart(
        f"{name} of {len(columns)} runs by step",
        _SIZE.width,
        bottom + TICK_ROOM,
        *grid(frame, _SIZE, values=bool(np.isfinite(shown).any())),
        *(_curve(runs[place], place, column, frame) for place, column in columns.items()),
        *(_marks(runs[place], place, column, frame) for place, column in columns.items()),
        kind="compared",
    )
    note = f"{len(columns)} of {len(runs)} runs" if len(columns) < len(runs) else ""
    if beyond.any():
        note = " · ".join(filter(None, (note, f"values above {number(limit, 2)} at the edge")))
    return Figure(name, note, svg)


def _lines_of(column: Column) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return what is drawn of a column: steps and values, float64 [N] each."""
    if column.mode == "train":
        steps, trend = smoothed(column.steps, column.values)
        if len(trend):
            return steps, trend
    return thinned(column.steps, column.values)


def _height(frame: Frame, values: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return pixels, float64, shape as given; values beyond the axis lie at its end."""
    return np.clip(frame.y(values), frame.top, frame.bottom)


def _curve(run: ComparedRun, place: int, column: Column, frame: Frame) -> Svg:
    steps, values = _lines_of(column)
    x, y = frame.x(steps), _height(frame, values)
    finite = np.isfinite(y)
    points: list[Svg] = []
    if finite.sum() == 1 or (column.mode != "train" and len(column) <= _MOST_POINTS):
        points = [
            element("circle", cx=float(left), cy=float(down), r=2.2)
            for left, down in zip(x[finite], y[finite], strict=True)
        ]
    bad = column.steps[~np.isfinite(column.values)]
    return element(
        "g",
        element("title", f"{run.name}: {number(float(column.values[-1]))} at the end"),
        element("path", d=path_data(x, y)),
        *points,
        *nonfinite_strokes(frame.x(bad), frame.bottom),
        class_=f"run run-{place}",
    )


def _marks(run: ComparedRun, place: int, column: Column, frame: Frame) -> Svg:
    """Return a sign on the curve for each root cause among the findings."""
    steps, values = _lines_of(column)
    finite = np.isfinite(values)
    drawn = []
    for cause in run.judged.causes:
        finding = cause.finding
        height = np.interp(finding.step, steps[finite], values[finite]) if finite.any() else np.nan
        y = float(_height(frame, np.array(height)))
        sign = severity_sign(
            finding.severity, float(frame.x(finding.step)), frame.top if np.isnan(y) else y
        )
        title = element("title", f"{run.name}: {finding.rule} at step {finding.step:,}")
        drawn.append(element("g", title, sign, class_=f"entry {finding.severity}"))
    return element("g", *drawn, class_=f"run-{place} fired")
