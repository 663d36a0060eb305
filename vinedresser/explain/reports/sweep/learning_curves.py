"""Chart of the objective over the epochs, for all trials."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from vinedresser.explain.charts.axes import TICK_ROOM, Frame, Size, grid, step_axis
from vinedresser.explain.charts.scale import nice_scale
from vinedresser.explain.charts.svg import Svg, chart, element, path_data
from vinedresser.explain.reports.sweep.trial_labels import in_drawing_order, trial_label
from vinedresser.sweeps.trial import Trial

_TOP = 8.0
# Share of outliers at either end that does not extend the axis.
_OUTLIERS = 0.02


def learning_curves(trials: Sequence[Trial], size: Size, label: str) -> Svg | None:
    """Return a chart of all trials with a value; None if there are none.

    Args:
        trials: trials of the sweep.
        size: size of the chart.
        label: accessible name of the chart.
    """
    shown = [trial for trial in in_drawing_order(trials) if trial.values]
    if not shown:
        return None
    values = np.array([value for trial in shown for value in trial.values.values()])
    low, high = np.quantile(values, [_OUTLIERS, 1 - _OUTLIERS])
    last = max(trial.epochs for trial in shown)
    bottom = _TOP + size.height
    scale = nice_scale(values[(values >= low) & (values <= high)], bottom, _TOP)
    frame = Frame(step_axis((1, last), size), scale, _TOP, bottom)
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
        "g", element("title", trial_label(trial)), line, end, class_=f"trial {trial.ending.state}"
    )
