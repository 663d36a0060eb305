"""A size of each layer by captured step: norms of gradients, update-to-weight ratios."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from vinedresser.store.reading.reader import Run
from vinedresser.store.reading.series import Column, Columns

__all__ = [
    "GRADIENT_SIZES",
    "LayerMap",
    "common_maps",
    "gradient_columns",
    "gradient_map",
    "layer_map",
    "ratio_columns",
]

# Names of the statistics that measure a gradient, the preferred first.
GRADIENT_SIZES = {"l2": "Euclidean norm", "abs_mean": "mean absolute value"}
_MOST_COLUMNS = 240


@dataclass(frozen=True, eq=False)
class LayerMap:
    """Logarithms of a size of each layer.

    Shape legend: L layers; C columns, each of one or more captured steps.

    Attributes:
        names: names of the layers or parameters [L], in model order.
        starts: first step of each column, int64 [C].
        last: last captured step.
        steps: number of captured steps.
        log10: mean over the steps of a column, float64 [L, C]; -inf if the size was zero at all of
            them, NaN if it was not finite at one of them or not captured.
        captured: bool [L, C]; False if no step of the column has the layer.
    """

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


def gradient_columns(run: Run) -> tuple[str, list[Column]] | None:
    """Return the sizes of the gradients of rank 0 at training steps; None if not captured.

    Returns:
        "l2" (Euclidean norm) or "abs_mean", whichever was captured for more parameters (in a tie
        the norm), and its columns by the names of the parameters, in model order.
    """
    best: tuple[str, Columns] | None = None
    for reduction in GRADIENT_SIZES:
        columns = run.reductions(reduction, "gradients", mode="train")
        if len(columns) > (0 if best is None else len(best[1])):
            best = (reduction, columns)
    if best is None:
        return None
    return best[0], [_renamed(column, "gradients/") for column in best[1].values() if len(column)]


def ratio_columns(run: Run) -> list[Column]:
    """Return |update| / |weight| (Euclidean norms) of each weight; [] if not captured.

    Uses training steps of rank 0 with both norms. About 1e-3 is usual (Karpathy, "A Recipe for
    Training Neural Networks", 2019).
    """
    updates = run.reductions("l2", "updates", mode="train")
    weights = run.reductions("l2", "weights", mode="train")
    found = []
    for column in updates.values():
        below = weights.get(f"weights/{column.name.removeprefix('updates/')}")
        if below is not None:
            found.append(_ratio(_renamed(column, "updates/"), below))
    return [column for column in found if len(column)]


def gradient_map(run: Run) -> tuple[str, LayerMap] | None:
    """Return the statistic of `gradient_columns` and its map; None if not captured."""
    found = gradient_columns(run)
    if found is None or not found[1]:
        return None
    return found[0], layer_map(found[1])


def layer_map(columns: Sequence[Column]) -> LayerMap:
    """Return a map of at most 240 columns, each of the same number of captured steps.

    Args:
        columns: sizes by the names of the layers, at least one with a step.
    """
    steps = _captured(columns)
    # The same number of steps per column keeps evenly captured steps evenly spaced.
    return _matrix(columns, steps[:: -(-len(steps) // _MOST_COLUMNS)])


def common_maps(runs: Sequence[Sequence[Column]]) -> list[LayerMap]:
    """Return maps of several runs with the same columns.

    The columns are equally wide, as wide as the usual interval between captured steps. One in
    which a run captured nothing has the values of the previous one, up to the last captured step.

    Args:
        runs: columns of each run, as from `gradient_columns`; at least one with steps.
    """
    steps = [_captured(columns) for columns in runs]
    first, last = min(int(step[0]) for step in steps), max(int(step[-1]) for step in steps)
    intervals = [int(np.median(np.diff(step))) for step in steps if len(step) > 1]
    width = max([*intervals, -(-(last + 1 - first) // _MOST_COLUMNS)])
    starts = np.arange(first, last + 1, width)
    return [replace(_filled(_matrix(columns, starts)), last=last) for columns in runs]


def _renamed(column: Column, prefix: str) -> Column:
    name = column.name.removeprefix(prefix)
    return Column(name, column.steps, column.values, column.times, column.modes)


def _ratio(above: Column, below: Column) -> Column:
    steps, places, others = np.intersect1d(above.steps, below.steps, return_indices=True)
    # Weights that are all zero, or overflow, have no ratio.
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        values = above.values[places] / below.values[others]
    return Column(above.name, steps, values, above.times[places], above.modes[places])


def _captured(columns: Sequence[Column]) -> NDArray[np.int64]:
    """Return the distinct steps of columns, int64 [steps], ascending."""
    return np.unique(np.concatenate([*_steps(columns).values()]))


def _steps(columns: Sequence[Column]) -> dict[int, NDArray[np.int64]]:
    """Return the arrays of steps by identity: columns that were captured together share one."""
    return {id(column.steps): column.steps for column in columns}


def _matrix(columns: Sequence[Column], starts: NDArray[np.int64]) -> LayerMap:
    """Return the map of columns; starts: first step of each column of the map, int64 [C]."""
    steps = _captured(columns)
    places = {
        key: np.searchsorted(starts, own, side="right") - 1 for key, own in _steps(columns).items()
    }
    counts = {key: np.bincount(place, minlength=len(starts)) for key, place in places.items()}
    return LayerMap(
        names=tuple(column.name for column in columns),
        starts=starts,
        last=int(steps[-1]),
        steps=len(steps),
        log10=np.array(
            [_row(one.values, places[id(one.steps)], counts[id(one.steps)]) for one in columns]
        ),
        captured=np.array([counts[id(one.steps)] > 0 for one in columns]),
    )


def _filled(data: LayerMap) -> LayerMap:
    """Return a map whose columns without a captured step repeat the one before."""
    places = np.arange(len(data.starts))
    latest = np.maximum.accumulate(np.where(data.captured, places, 0), axis=1)
    latest = np.where(data.starts <= data.last, latest, places)
    rows = np.arange(len(data.names))[:, None]
    return replace(data, log10=data.log10[rows, latest], captured=data.captured[rows, latest])


def _row(
    values: NDArray[np.float64], place: NDArray[np.intp], counts: NDArray[np.intp]
) -> NDArray[np.float64]:
    """Return the logarithms of one parameter, float64 [C].

    Args:
        values: float64 [steps].
        place: column of the map of each value, int [steps].
        counts: number of values in each column, int [C].
    """
    size = len(counts)
    values = np.abs(values)
    finite = np.isfinite(values)
    broken = counts == 0
    if not finite.all():
        broken |= np.bincount(place, ~finite, minlength=size) > 0
    usable = finite & (values > 0)
    if usable.all():
        logs = np.log10(values)
    else:
        logs = np.log10(values, out=np.zeros_like(values), where=usable)
        counts = np.bincount(place[usable], minlength=size)
    with np.errstate(invalid="ignore", divide="ignore"):
        mean = np.bincount(place, logs, minlength=size) / counts
    row = np.where(counts > 0, mean, -np.inf)
    row[broken] = np.nan
    return row
