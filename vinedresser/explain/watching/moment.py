"""One step of a run: values, sizes of the gradients and distributions, with the past dimmed."""

from __future__ import annotations

import numpy as np

from vinedresser.explain.charts.axes import Size
from vinedresser.explain.charts.figure import Figure
from vinedresser.explain.charts.frames import layer_profile, ridge_chart
from vinedresser.explain.charts.gradient_frames import gradient_frames
from vinedresser.explain.charts.histograms import histogram_map
from vinedresser.explain.charts.layer_map import GRADIENT_SIZES
from vinedresser.explain.formatting import number
from vinedresser.explain.reports.scalar_sections import NARROW
from vinedresser.explain.reports.templating import rendered
from vinedresser.store.reading.reader import Run
from vinedresser.store.reading.series import Column

_PROFILE = Size(920, 180)
_MOST_VALUES = 24
_MOST_FRAMES = 8
_MOST_RIDGES = 4


def moment(run: Run, step: int) -> str:
    """Return a section with the state of a run at a step: the last values up to it.

    Args:
        step: the training step.

    Raises:
        StoreError: the storage refused.
    """
    values = [
        (name, number(value), at)
        for name, column in list(run.scalars(mode="train").items())[:_MOST_VALUES]
        if (found := _at(column, step)) is not None
        for value, at in [found]
    ]
    figures = [*_profile(run, step), *_ridges(run, step)]
    return rendered("moment.html.j2", step=step, values=values, figures=figures)


def _at(column: Column, step: int) -> tuple[float, int] | None:
    """Return the last value up to a step, and its step; None: there is none."""
    place = int(np.searchsorted(column.steps, step, side="right")) - 1
    return None if place < 0 else (float(column.values[place]), int(column.steps[place]))


def _profile(run: Run, step: int) -> list[Figure]:
    """Return the sizes of the gradients by layer at the last captured steps up to a step."""
    found = gradient_frames(run, step, _MOST_FRAMES)
    if found is None:
        return []
    last = int(found.steps[-1])
    label = f"Gradients by layer at step {last}"
    svg = layer_profile(found.values, found.steps.tolist(), found.names, _PROFILE, label)
    note = f"{GRADIENT_SIZES[found.reduction]} at step {last:,}; layers in model order"
    return [Figure("Gradients by layer", f"{note}; earlier captured steps are dimmed", svg)]


def _ridges(run: Run, step: int) -> list[Figure]:
    """Return the distributions of some tensors at the last captured steps up to a step."""
    figures = []
    for name in run.vector_names("histogram")[:_MOST_RIDGES]:
        data = histogram_map(run, name)
        if data is not None:
            svg = ridge_chart(data, step, _MOST_FRAMES, NARROW, f"Distribution of {name}")
            figures.append(Figure(name, "distribution of the elements, the newest in front", svg))
    return figures
