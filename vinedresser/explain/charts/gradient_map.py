"""Matrix of gradient sizes by parameter and captured step."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from vinedresser.store.reading.reader import Run
from vinedresser.store.reading.series import Column, Columns

__all__ = ["GradientMap", "gradient_map"]

_PREFERENCE = ("l2", "abs_mean")
_MOST_COLUMNS = 240


@dataclass(frozen=True, eq=False)
class GradientMap:
    """Logarithms of gradient sizes.

    Shape legend: L parameters with a gradient; C columns, each of one or more captured steps.

    Attributes:
        reduction: the statistic, "l2" (Euclidean norm) or "abs_mean".
        names: names of the parameters [L], in model order.
        starts: first step of each column, int64 [C].
        last: last captured step.
        steps: number of captured steps.
        log10: mean over the steps of a column, float64 [L, C]; -inf if the gradient was zero at
            all of them, NaN if it was not finite at one of them or not captured.
        captured: bool [L, C]; False if no step of the column has the parameter.
    """

    reduction: str
    names: tuple[str, ...]
    starts: NDArray[np.int64]
    last: int
    steps: int
    log10: NDArray[np.float64]
    captured: NDArray[np.bool_]

    @property
    def merged(self) -> bool:
        """Whether a column contains more than one captured step."""
        return len(self.starts) < self.steps


def gradient_map(run: Run) -> GradientMap | None:
    """Return the map of rank 0 and training steps; None if neither statistic was captured.

    If both were captured, use the one with more parameters, and the norm in a tie.
    """
    best: tuple[str, Columns] | None = None
    for reduction in _PREFERENCE:
        columns = run.reductions(reduction, "gradients", mode="train")
        if len(columns) > (0 if best is None else len(best[1])):
            best = (reduction, columns)
    if best is None:
        return None
    reduction, columns = best
    present = [column for column in columns.values() if len(column)]
    return _matrix(reduction, present) if present else None


def _matrix(reduction: str, columns: Sequence[Column]) -> GradientMap:
    steps = np.unique(np.concatenate([column.steps for column in columns]))
    # The same number of steps per column keeps evenly captured steps evenly spaced.
    starts = steps[:: -(-len(steps) // _MOST_COLUMNS)]
    rows = [_row(column, starts) for column in columns]
    return GradientMap(
        reduction=reduction,
        names=tuple(column.name.removeprefix("gradients/") for column in columns),
        starts=starts,
        last=int(steps[-1]),
        steps=len(steps),
        log10=np.array([row for row, _ in rows]),
        captured=np.array([captured for _, captured in rows]),
    )


def _row(
    column: Column, starts: NDArray[np.int64]
) -> tuple[NDArray[np.float64], NDArray[np.bool_]]:
    """Return the logarithms of one parameter, float64 [C], and where it was captured, bool [C]."""
    size = len(starts)
    place = np.searchsorted(starts, column.steps, side="right") - 1
    values = np.abs(column.values)
    usable = np.isfinite(values) & (values > 0)
    seen = np.bincount(place, minlength=size) > 0
    broken = np.bincount(place, ~np.isfinite(values), minlength=size) > 0
    count = np.bincount(place, usable, minlength=size)
    logs = np.log10(values, out=np.zeros_like(values), where=usable)
    with np.errstate(invalid="ignore", divide="ignore"):
        mean = np.bincount(place, logs, minlength=size) / count
    row = np.where(count > 0, mean, -np.inf)
    row[broken | ~seen] = np.nan
    return row, seen
