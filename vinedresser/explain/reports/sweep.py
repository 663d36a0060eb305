"""The report of a sweep: one self-contained page."""

from __future__ import annotations

import math
import os
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

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
from vinedresser.explain.reports.sweep_front import front_chart
from vinedresser.explain.reports.templating import write_page
from vinedresser.sweeps.dimension import Choice, Dimension
from vinedresser.sweeps.settings import SweepTable
from vinedresser.sweeps.space import Space
from vinedresser.sweeps.trial import (
    LEAST_RESULTS,
    Trial,
    TrialState,
    results_again,
    saved_share,
    spread,
    told_line,
)
from vinedresser.sweeps.trial_advice import trial_advice

__all__ = ["Cause", "SweepPage", "causes", "without_links", "write_sweep_report"]

# As the template writes them.
_LINK = re.compile(r'<a class="report" href="[^"]*">([^<]*)</a>')

_SIZE = Size(950.0, 260.0)
# Rows of the table; MLflow has all trials.
_ROWS = 25


@dataclass(frozen=True)
class SweepPage:
    """Contents of the page.

    Attributes:
        space: search space.
        trials: all trials that were started, by number.
        best: the best trial, or the Pareto front.
        importance: importance of each hyperparameter, from 0 to 1; empty if too few trials
            finished.
        over: why the sweep ended.
        doubts: what rules found in the best trials, a sentence for each with a problem.
        reports: reports of trials, by name of the trial, relative to the page.
    """

    name: str
    settings: SweepTable
    space: Space
    trials: Sequence[Trial]
    best: Sequence[Trial]
    importance: Mapping[str, float]
    over: str
    doubts: Sequence[str] = ()
    reports: Mapping[str, str] = field(default_factory=dict)

    @property
    def unimportant(self) -> str:
        """Why the importance of hyperparameters cannot be told; "" if it can."""
        if self.importance:
            return ""
        if any(trial.line is not None for trial in self.trials):
            return "Cannot be told: the results of a population depend on the generation, too."
        results = {trial.result[0] for trial in self.trials if trial.result}
        known = f"{len(results)}" if results else "none"
        return (
            f"Cannot be told: it needs {LEAST_RESULTS} finished trials with different results, "
            f"and there {'is' if len(results) == 1 else 'are'} {known}."
        )

    @property
    def ends(self) -> Counter[str]:
        """Number of trials by state."""
        return Counter(trial.ending.state for trial in self.trials)

    @property
    def epochs(self) -> int:
        """Epochs of all trials."""
        return sum(trial.epochs for trial in self.trials)

    @property
    def saved(self) -> float | None:
        """The share of the epochs of all trials that was not run; None if unknown.

        Trials that crashed save nothing.
        """
        if self.settings.epochs is None or not self.trials:
            return None
        return saved_share(self.trials, self.settings.epochs)

    def rows(self) -> list[Trial]:
        """Return the trials to list: the front or the best one, then by the first objective."""
        goal = self.settings.goals[0]
        sign = -1 if goal.direction == "maximize" else 1
        known = [trial for trial in self.trials if trial.result or trial.values]
        known.sort(
            key=lambda trial: (not self.is_best(trial), not trial.feasible, sign * _value(trial))
        )
        return known[:_ROWS]

    @property
    def again(self) -> str:
        """Spread of the results of the best trial with other seeds; "" if unknown."""
        several = len(self.settings.goals) > 1
        return "" if several else spread(results_again(self.trials, self.best))

    @property
    def line(self) -> str:
        """The line of the best trial in a population, with its schedule; "" without one."""
        best = next((one for one in self.best if one.line is not None), None)
        return "" if best is None else told_line(best, self.trials)

    def is_best(self, trial: Trial) -> bool:
        """Return whether a trial is the best one, or on the Pareto front."""
        return any(one.number == trial.number for one in self.best)


def write_sweep_report(page: SweepPage, destination: str | os.PathLike[str]) -> Path:
    """Write the page and return its path; see `write_page`.

    Raises:
        StoreError: the file cannot be written.
    """
    metric = page.settings.goals[0].metric
    return write_page(
        destination,
        "sweep.html.j2",
        page=page,
        metric=metric,
        value=_value,
        curves=_learning_curves(page.trials, _SIZE, f"{metric} of every trial over the epochs"),
        coordinates=_coordinates(
            page.trials, page.space, metric, _SIZE, "every configuration as a line"
        ),
        causes=causes(page.trials, page.space, page.best),
        front=front_chart(page.trials, page.best, page.settings.goals, _SIZE)
        if len(page.settings.goals) > 1
        else None,
    )


def without_links(page: str) -> str:
    """Return the page without its links to the reports of trials, for a copy elsewhere.

    Args:
        page: HTML of `write_sweep_report`.
    """
    return _LINK.sub(r"\1", page)


def _value(trial: Trial) -> float:
    """Return the result of a trial's first objective, or its last reported value."""
    return trial.result[0] if trial.result else list(trial.values.values())[-1]


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


def _learning_curves(trials: Sequence[Trial], size: Size, label: str) -> Svg | None:
    """Return a chart of all trials with a value; None if there are none.

    Args:
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


def _coordinates(trials: Sequence[Trial], space: Space, metric: str, size: Size, label: str) -> Svg:
    """Return a chart with one axis per hyperparameter, and one for the last value of the metric.

    Lines have gaps at hyperparameters that a trial does not use.

    Args:
        label: accessible name of the chart.
    """
    bottom = _TOP + size.height
    axes = [_Axis(dimension, bottom) for dimension in space.dimensions]
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


# Trials needed to speak of a part of the space.
_FEW = 3
# Share of a range above which it counts as the whole range.
_WHOLE = 0.6


@dataclass(frozen=True)
class Cause:
    """Trials in which rules found one fault: stopped ones, and pruned ones.

    Attributes:
        fault: the fault in words.
        trials: the trials, by number.
        where: part of the search space where they lie; "" if it is not a proper part.
        example: a trial, one that was stopped if there is any.
        remedy: what to change in the example, in view of the best trial; "" if unknown.
    """

    fault: str
    rules: tuple[str, ...]
    trials: tuple[Trial, ...]
    where: str
    example: Trial
    remedy: str


def causes(trials: Sequence[Trial], space: Space, best: Sequence[Trial]) -> list[Cause]:
    """Return the faults of stopped and pruned trials, the most frequent first.

    Args:
        best: the best trial, or the Pareto front; empty if none has finished.
    """
    groups: dict[str, list[Trial]] = {}
    for trial in trials:
        ending = trial.ending
        if ending.state == "stopped" or (ending.state == "pruned" and ending.rule):
            groups.setdefault(ending.fault or ending.rule or "other", []).append(trial)
    found = []
    for fault, group in groups.items():
        example = next((one for one in group if one.ending.state == "stopped"), group[0])
        found.append(
            Cause(
                fault=fault.replace("_", " "),
                rules=tuple(dict.fromkeys(one.ending.rule for one in group if one.ending.rule)),
                trials=tuple(group),
                where=", ".join(
                    filter(None, (_part(dimension, group) for dimension in space.dimensions))
                ),
                example=example,
                remedy=trial_advice(example, best),
            )
        )
    return sorted(found, key=lambda cause: len(cause.trials), reverse=True)


def _part(dimension: Dimension, group: Sequence[Trial]) -> str:
    """Return the range of a hyperparameter in these trials; "" if it is nearly the whole range."""
    values = [one.parameters[dimension.name] for one in group if dimension.name in one.parameters]
    if len(values) < _FEW:
        return ""
    if dimension.kind == "choice":
        kinds = sorted({str(value) for value in values})
        return f"{dimension.name} {', '.join(kinds)}" if len(kinds) < len(dimension.choices) else ""
    low, high = min(float(one) for one in values), max(float(one) for one in values)
    if _share(dimension, low, high) > _WHOLE:
        return ""
    return f"{dimension.name} {low:.3g} to {high:.3g}"


def _share(dimension: Dimension, low: float, high: float) -> float:
    """Return the share of the range that lies between two values."""
    along = math.log if dimension.log else float
    whole = along(dimension.high) - along(dimension.low)
    return (along(high) - along(low)) / whole
