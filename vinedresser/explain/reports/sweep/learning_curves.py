"""The values of the objective over the epochs, of all trials in one chart."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from vinedresser.explain.charts.axes import TICK_ROOM, Frame, Size, grid, step_axis
from vinedresser.explain.charts.scale import nice_scale
from vinedresser.explain.charts.svg import Svg, element, path_data
from vinedresser.explain.reports.sweep.trial_labels import in_drawing_order, words
from vinedresser.sweeps.trial import Trial

__all__ = ["learning_curves"]

_TOP = 8.0
# Room for values that lie far from the others is not given to more than this share of them.
_OUTLIERS = 0.02


def learning_curves(trials: Sequence[Trial], size: Size, label: str) -> Svg | None:
    """Return a chart of all trials that have reported; None where none has.

    Args:
        trials: of the sweep.
        size: of the chart.
        label: what it shows, for those who do not see it.
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
    return element(
        "svg",
        *grid(frame, size, values=True),
        *(_curve(trial, frame) for trial in shown),
        viewBox=f"0 0 {size.width:g} {bottom + TICK_ROOM:g}",
        class_="chart",
        role="img",
        aria_label=label,
    )


def _curve(trial: Trial, frame: Frame) -> Svg:
    """Return the line of a trial, with a point at its end; what is off the chart is at its edge."""
    epochs = np.array(list(trial.values), dtype=np.float64)
    values = np.array(list(trial.values.values()))
    heights = np.clip(frame.y(values), frame.top, frame.bottom)
    places = frame.x(epochs)
    end = element("circle", cx=float(places[-1]), cy=float(heights[-1]), r=2.2)
    line = element("path", d=path_data(places, heights))
    return element(
        "g", element("title", words(trial)), line, end, class_=f"trial {trial.ending.state}"
    )
