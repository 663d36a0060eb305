"""Sizes of the gradients by layer at the last captured steps, without reading the other steps."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from vinedresser.errors import CorruptData
from vinedresser.explain.charts.layer_map import GRADIENT_SIZES
from vinedresser.store.index.index_record import ColumnGroup
from vinedresser.store.index.layout import ColumnLayout
from vinedresser.store.reading.reader import Run
from vinedresser.store.segments.segment import Segment
from vinedresser.store.step_record import MODES

__all__ = ["GradientFrames", "gradient_frames"]

_PREFIX = "gradients/"
_TRAIN = MODES.index("train")


class GradientFrames(NamedTuple):
    """Sizes of the gradients by layer at some steps.

    Shape legend: F frames, L layers.

    Attributes:
        reduction: a key of `GRADIENT_SIZES`.
        names: names of the parameters [L], in model order.
        steps: int64 [F], ascending.
        values: float64 [F, L]; NaN: not captured at this step, or damaged.
    """

    reduction: str
    names: tuple[str, ...]
    steps: NDArray[np.int64]
    values: NDArray[np.float64]


class _Captured(NamedTuple):
    """A matrix with gradients, unread.

    Attributes:
        group: its group there.
        places: positions of the gradients in its layout.
        taken: whether a row of the matrix is a training step, bool [n].
        steps: step of each row, int64 [n].
    """

    segment: Segment
    group: ColumnGroup
    places: list[int]
    taken: NDArray[np.bool_]
    steps: NDArray[np.int64]


def gradient_frames(run: Run, step: int, most: int) -> GradientFrames | None:
    """Return the sizes of `gradient_columns` at the last captured steps; None if there are none.

    Only the segments of these steps are read. Damaged ones are added to the problems of the run.

    Args:
        most: maximum number of steps.

    Raises:
        StoreError: the storage refused.
    """
    found = [(word, [*_captured(run, word)]) for word in GRADIENT_SIZES]
    names = [_names(captured) for _, captured in found]
    # Of equally many the first, as in `gradient_columns`.
    best = max(range(len(found)), key=lambda place: len(names[place]))
    reduction, captured = found[best]
    if not captured:
        return None
    steps = np.unique(np.concatenate([np.unique(one.steps[one.taken]) for one in captured]))
    steps = steps[steps <= step][-most:]
    if not steps.size:
        return None
    columns = {name: column for column, name in enumerate(names[best])}
    values = np.full((len(steps), len(columns)), np.nan)
    for one in captured:
        rows = np.flatnonzero(one.taken & np.isin(one.steps, steps))
        if not rows.size:
            continue
        layout = one.group.layout
        try:
            matrix = one.segment.matrix(one.group)
        except CorruptData as error:
            run.problem_log.note(str(error))
            continue
        statistic = matrix[:, :, (layout.reductions or ()).index(reduction)]
        own = [columns[layout.names[place]] for place in one.places]
        for frame, row in zip(np.searchsorted(steps, one.steps[rows]), rows, strict=True):
            values[frame, own] = statistic[row, one.places]
    return GradientFrames(
        reduction, tuple(name.removeprefix(_PREFIX) for name in columns), steps, values
    )


def _captured(run: Run, reduction: str) -> Iterator[_Captured]:
    """Yield the matrices that have a statistic of gradients at a training step, unread."""
    members = frozenset(run.tensor_names(collection="gradients"))
    places: dict[ColumnLayout, list[int]] = {}
    for segment in run.segments():
        modes, steps, _ = segment.record.rows
        for group in segment.record.columns:
            layout = group.layout
            if reduction not in (layout.reductions or ()):
                continue
            if layout not in places:
                places[layout] = [
                    place for place, name in enumerate(layout.names) if name in members
                ]
            rows = segment.rows_of(group)
            taken = modes[rows] == _TRAIN
            if places[layout] and taken.any():
                yield _Captured(segment, group, places[layout], taken, steps[rows])


def _names(captured: list[_Captured]) -> dict[str, None]:
    """Return the distinct names of gradients, in the order of their first capture."""
    layouts = {one.group.layout: one.places for one in captured}
    return {layout.names[place]: None for layout, own in layouts.items() for place in own}
