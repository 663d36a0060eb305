"""One statistic of every layer over the steps."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from vinedresser.store.reading.reader import Run
from vinedresser.store.reading.series import Column

__all__ = ["LayerSeries", "layer_statistic", "update_ratios"]

_MOST_STEPS = 120


@dataclass(frozen=True, eq=False)
class LayerSeries:
    """A statistic of layers over the steps.

    Shape legend: L layers, N kept steps.

    Attributes:
        names: names of the layers or parameters [L], in model order.
        steps: int64 [N], ascending; evenly spread among the captured steps.
        values: float64 [L, N]; NaN where not captured or not finite.
        captured: number of captured steps.
        broken: number of captured values at kept steps that are not finite.
    """

    names: tuple[str, ...]
    steps: NDArray[np.int64]
    values: NDArray[np.float64]
    captured: int
    broken: int


def update_ratios(run: Run) -> LayerSeries | None:
    """Return |update| / |weight| (Euclidean norms) of each weight; None if not captured.

    Uses training steps of rank 0 with both norms. About 1e-3 is usual (Karpathy, "A Recipe for
    Training Neural Networks", 2019).
    """
    updates = run.reductions("l2", "updates", mode="train")
    weights = run.reductions("l2", "weights", mode="train")
    ratios = []
    for column in updates.values():
        name = column.name.removeprefix("updates/")
        below = weights.get(f"weights/{name}")
        if below is not None:
            ratios.append(_ratio(name, column, below))
    return _series(ratios)


def layer_statistic(run: Run, reduction: str, collection: str) -> LayerSeries | None:
    """Return a statistic of each tensor of a collection, for training steps of rank 0.

    Args:
        run: the run.
        reduction: name of the statistic, such as "zero_share".
        collection: name of the collection, such as "activations".

    Returns:
        The series, with names without their kind; None if not captured.
    """
    columns = run.reductions(reduction, collection, mode="train")
    return _series(
        [
            (column.name.partition("/")[2], column.steps, column.values)
            for column in columns.values()
        ]
    )


_Points = tuple[str, NDArray[np.int64], NDArray[np.float64]]


def _ratio(name: str, above: Column, below: Column) -> _Points:
    steps, places, others = np.intersect1d(above.steps, below.steps, return_indices=True)
    # Weights that are all zero, or overflow, have no ratio.
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        return name, steps, above.values[places] / below.values[others]


def _series(points: Sequence[_Points]) -> LayerSeries | None:
    points = [one for one in points if len(one[1])]
    if not points:
        return None
    captured = np.unique(np.concatenate([steps for _, steps, _ in points]))
    chosen = np.linspace(0, len(captured) - 1, min(len(captured), _MOST_STEPS)).round()
    kept = captured[chosen.astype(np.intp)]
    values = np.full((len(points), len(kept)), np.nan)
    broken = 0
    for row, (_, steps, own) in zip(values, points, strict=True):
        places = np.searchsorted(steps, kept)
        there = places < len(steps)
        there[there] = steps[places[there]] == kept[there]
        found = own[places[there]]
        broken += int(np.count_nonzero(~np.isfinite(found)))
        row[there] = np.where(np.isfinite(found), found, np.nan)
    return LayerSeries(tuple(name for name, _, _ in points), kept, values, len(captured), broken)
