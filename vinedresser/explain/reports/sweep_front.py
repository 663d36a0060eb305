"""The chart of a sweep with several objectives: its trials by two of them, and the Pareto front."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from vinedresser.explain.charts.axes import TICK_ROOM, Frame, Size, grid, nice_scale
from vinedresser.explain.charts.svg import Svg, chart, element, path_data
from vinedresser.sweeps.settings import Objective
from vinedresser.sweeps.trial import Trial

# Pixels above the plot, and below the labels of its horizontal axis for its name.
_ROOM, _NAME = 22.0, 18.0
_RADIUS = 3.4


def front_chart(
    trials: Sequence[Trial], front: Sequence[Trial], goals: Sequence[Objective], size: Size
) -> Svg | None:
    """Return a chart of the finished trials by the first two objectives; None without any.

    The front is drawn as steps: a result above them, or below for what is maximized, would be
    better than each of its trials. With more than two objectives, it is not a line in this plane.

    Args:
        trials: trials of the sweep.
        front: the trials on its Pareto front.
        goals: the objectives, at least two.
    """
    shown = [trial for trial in trials if trial.result]
    if not shown:
        return None
    values = np.array([trial.result[:2] for trial in shown])
    bottom = _ROOM + size.height
    frame = Frame(
        nice_scale(values[:, 0], size.left, size.width - size.right),
        nice_scale(values[:, 1], bottom, _ROOM),
        _ROOM,
        bottom,
    )
    first, second = goals[:2]
    members = {trial.number for trial in front}
    others = [trial for trial in shown if trial.number not in members]
    lines = [_steps(front, goals, frame)] if len(goals) == 2 and len(front) > 1 else []
    return chart(
        f"{second.metric} over {first.metric} of every finished trial, with the Pareto front",
        size.width,
        bottom + TICK_ROOM + _NAME,
        *grid(frame, size, values=True),
        element("text", _named(second), x=size.left, y=12, class_="tick"),
        element(
            "text",
            _named(first),
            x=(frame.x.start + frame.x.end) / 2,
            y=bottom + TICK_ROOM + 12,
            class_="tick x",
        ),
        *lines,
        *(_point(trial, goals, frame, "dominated") for trial in others),
        *(_point(trial, goals, frame, "front") for trial in front),
    )


def _named(goal: Objective) -> str:
    return f"{goal.metric} ({goal.direction})"


def _point(trial: Trial, goals: Sequence[Objective], frame: Frame, kind: str) -> Svg:
    both = zip(goals, trial.result, strict=True)
    values = ", ".join(f"{goal.metric} {value:.5g}" for goal, value in both)
    on = ", on the Pareto front" if kind == "front" else "" if trial.feasible else ", infeasible"
    title = element("title", f"{trial.name}{on}: {values}; {trial.configuration}")
    x, y = float(frame.x(trial.result[0])), float(frame.y(trial.result[1]))
    return element("g", title, element("circle", cx=x, cy=y, r=_RADIUS), class_=f"point {kind}")


def _steps(front: Sequence[Trial], goals: Sequence[Objective], frame: Frame) -> Svg:
    """Return the border of what the front dominates."""
    results = np.array(sorted(trial.result for trial in front))
    x, y = frame.x(results[:, 0]), frame.y(results[:, 1])
    # Between two neighbours, the border lies where the result is worse than both.
    places, heights = np.empty(2 * len(x) - 1), np.empty(2 * len(x) - 1)
    places[0::2], heights[0::2] = x, y
    smaller = goals[0].direction == "minimize"
    places[1::2], heights[1::2] = (x[1:], y[:-1]) if smaller else (x[:-1], y[1:])
    return element("path", d=path_data(places, heights), class_="front-line")
