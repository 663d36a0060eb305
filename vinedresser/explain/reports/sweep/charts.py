"""Charts of the trials of a sweep: objective over the epochs, and parallel coordinates."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

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
from vinedresser.explain.charts.svg import Svg, chart, element, path_data
from vinedresser.sweeps.dimension import Choice, Dimension
from vinedresser.sweeps.space import Space
from vinedresser.sweeps.trial import Trial, TrialState

__all__ = ["coordinates", "learning_curves"]

# Later states are drawn on top: finished trials are few and must be visible.
_STATES: tuple[TrialState, ...] = (
    "pruned",
    "failed",
    "stopped",
    "interrupted",
    "running",
    "finished",
)
# Pixels above the curves, and around the coordinates.
_ROOM = 8.0
_TOP, _FOOT, _MARGIN = 26.0, 14.0, 40.0
# Share of outliers at either end that does not extend an axis.
_OUTLIERS = 0.02
_RANGE_TICKS = 5


def _in_drawing_order(trials: Sequence[Trial]) -> list[Trial]:
    """Return the trials, grouped by state."""
    return sorted(trials, key=lambda trial: _STATES.index(trial.ending.state))


def _trial_label(trial: Trial) -> str:
    """Return name, state and configuration of a trial in a line."""
    ending = trial.ending
    word = "broken: " if ending.state == "pruned" else "by "
    why = f" {word}{ending.rule}" if ending.rule else ""
    return f"{trial.name}, {ending.state}{why}: {trial.configuration}"


def learning_curves(trials: Sequence[Trial], size: Size, label: str) -> Svg | None:
    """Return a chart of all trials with a value; None if there are none.

    Args:
        trials: trials of the sweep.
        size: size of the chart.
        label: accessible name of the chart.
    """
    shown = [trial for trial in _in_drawing_order(trials) if trial.values]
    if not shown:
        return None
    values = np.array([value for trial in shown for value in trial.values.values()])
    low, high = np.quantile(values, [_OUTLIERS, 1 - _OUTLIERS])
    last = max(trial.epochs for trial in shown)
    bottom = _ROOM + size.height
    scale = nice_scale(values[(values >= low) & (values <= high)], bottom, _ROOM)
    frame = Frame(step_axis((1, last), size), scale, _ROOM, bottom)
    return chart(
        label,
        size.width,
        bottom + TICK_ROOM,
        *grid(frame, size, values=True),
        *(_curve(trial, frame) for trial in shown),
    )


def _curve(trial: Trial, frame: Frame) -> Svg:
    """Return the line of a trial with a point at its end; outliers lie at the edge of the chart."""
    epochs = np.array(list(trial.values), dtype=np.float64)
    values = np.array(list(trial.values.values()))
    heights = np.clip(frame.y(values), frame.top, frame.bottom)
    places = frame.x(epochs)
    end = element("circle", cx=float(places[-1]), cy=float(heights[-1]), r=2.2)
    line = element("path", d=path_data(places, heights))
    return element(
        "g", element("title", _trial_label(trial)), line, end, class_=f"trial {trial.ending.state}"
    )


def coordinates(trials: Sequence[Trial], space: Space, metric: str, size: Size, label: str) -> Svg:
    """Return a chart with one axis per hyperparameter, and one for the last value of the metric.

    Lines have gaps at hyperparameters that a trial does not use.

    Args:
        trials: trials of the sweep.
        space: search space of the sweep.
        metric: name of the metric.
        size: size of the chart.
        label: accessible name of the chart.
    """
    bottom = _TOP + size.height
    axes = [_Axis(one, bottom) for one in space.dimensions]
    places = np.linspace(_MARGIN, size.width - _MARGIN, len(axes) + 1)
    last = _result_scale(trials, bottom)
    lines = [_line(trial, axes, last, places) for trial in _in_drawing_order(trials)]
    drawn = [_axis(axis.name, axis.ticks(), x) for axis, x in zip(axes, places, strict=False)]
    results = {tick.label: float(last(tick.value)) for tick in last.ticks(_RANGE_TICKS)}
    return chart(
        label, size.width, bottom + _FOOT, *lines, *drawn, _axis(metric, results, float(places[-1]))
    )


class _Axis:
    """The axis of a hyperparameter."""

    def __init__(self, dimension: Dimension, bottom: float) -> None:
        self.name = dimension.name
        self._dimension = dimension
        self._bottom = bottom
        low, high, log = dimension.low, dimension.high, dimension.log
        if dimension.kind == "choice":
            low, high = -0.5, len(dimension.choices) - 0.5
        self._scale = Scale(low, high, bottom, _TOP, log, whole=dimension.kind == "int")

    def height(self, parameters: Mapping[str, Choice]) -> float:
        """Return the pixel at which a configuration crosses the axis; NaN if it lacks the value."""
        if self.name not in parameters:
            return float("nan")
        value = parameters[self.name]
        if self._dimension.kind == "choice":
            return float(self._scale(self._dimension.choices.index(value)))
        return float(self._scale(float(value)))

    def ticks(self) -> dict[str, float]:
        """Return the pixels of the labels."""
        if self._dimension.kind == "choice":
            return {
                str(one): float(self._scale(place))
                for place, one in enumerate(self._dimension.choices)
            }
        found = {
            tick.label: float(self._scale(tick.value)) for tick in self._scale.ticks(_RANGE_TICKS)
        }
        ends = {f"{self._dimension.low:g}": self._bottom, f"{self._dimension.high:g}": _TOP}
        return found if len(found) > 1 else ends


def _result_scale(trials: Sequence[Trial], bottom: float) -> Scale:
    values = np.array([list(trial.values.values())[-1] for trial in trials if trial.values])
    if not len(values):
        return Scale(0.0, 1.0, bottom, _TOP)
    low, high = np.quantile(values, [_OUTLIERS, 1 - _OUTLIERS])
    room = 0.0 if high > low else abs(high) or 1.0
    return Scale(float(low) - room, float(high) + room, bottom, _TOP)


def _line(trial: Trial, axes: Sequence[_Axis], last: Scale, places: NDArray[np.float64]) -> Svg:
    """Return the line of a trial; places: pixels of the axes and the result, float64 [A + 1]."""
    heights = [axis.height(trial.parameters) for axis in axes]
    value = list(trial.values.values())[-1] if trial.values else float("nan")
    result = float(np.clip(last(value), last.end, last.start))
    path = element("path", d=path_data(places, np.array([*heights, result])))
    return element(
        "g", element("title", _trial_label(trial)), path, class_=f"trial {trial.ending.state}"
    )


def _axis(name: str, ticks: Mapping[str, float], x: float) -> Svg:
    low, high = max(ticks.values(), default=0.0), min(ticks.values(), default=0.0)
    labels = [
        element("text", text, x=x + 5, y=height + 3.5, class_="tick axis-label")
        for text, height in ticks.items()
    ]
    return element(
        "g",
        element("line", x1=x, x2=x, y1=low, y2=high, class_="axis"),
        element("text", name, x=x, y=14, class_="tick x"),
        *labels,
    )
