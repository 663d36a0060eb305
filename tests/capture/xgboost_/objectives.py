"""Custom objectives, healthy ones and some that break, and trainings with them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import xgboost
from numpy.typing import NDArray
from xgboost.objective import Objective, TreeObjective

from tests.capture.xgboost_.trainings import diabetes, squared_error
from vinedresser.capture import Hook
from vinedresser.snapshots.settings import SnapshotSettings

__all__ = [
    "BAD_ROW",
    "ROUNDS",
    "GammaTree",
    "Squared",
    "gamma",
    "in_place",
    "infinite",
    "poisson",
    "rows",
    "squared_error",
    "train",
    "weighted_squares",
]

BAD_ROW = 17
ROUNDS = 8


def rows() -> xgboost.DMatrix:
    """Return 442 patients; the progression of one is 0."""
    x, y = diabetes()
    y = y / 100
    y[BAD_ROW] = 0
    return xgboost.DMatrix(x, y)


def gamma(margin: NDArray[Any], data: xgboost.DMatrix) -> tuple[Any, Any]:
    """Return gradient and Hessian of a relative error, which a label of 0 does not have."""
    labels = data.get_label()
    with np.errstate(all="ignore"):
        return margin / labels - labels / labels, np.ones_like(margin)


def poisson(labels: NDArray[Any], margin: NDArray[Any]) -> tuple[Any, Any]:
    """Return gradient and Hessian for an estimator; they overflow once a margin is above 1."""
    with np.errstate(all="ignore"):
        hessian = np.exp(np.where(margin > 1, 1000 * margin, margin))
    return hessian - labels, hessian


def weighted_squares(
    labels: NDArray[Any], margin: NDArray[Any], sample_weight: NDArray[Any]
) -> tuple[Any, Any]:
    """Return gradient and Hessian of squares of which one weight is 0, divided by it."""
    with np.errstate(all="ignore"):
        return (margin - labels) / sample_weight, np.ones_like(margin)


def in_place(margin: NDArray[Any], data: xgboost.DMatrix) -> tuple[Any, Any]:
    """Return gradient and Hessian of a quotient; the gradient replaces the predictions."""
    margin -= data.get_label()
    with np.errstate(all="ignore"):
        return margin, margin / margin * np.float32(data.num_row() > 0)


def infinite(margin: NDArray[Any], data: xgboost.DMatrix) -> tuple[Any, Any]:
    """Return a gradient in float64 that is finite, but not as float32."""
    gradient = (margin - data.get_label()).astype(np.float64)
    gradient[[3, BAD_ROW]] = 1e39, -1e300
    return gradient, np.ones_like(gradient)


class Squared(Objective):
    """Half the squared error."""

    def __call__(self, iteration: int, y_pred: Any, dtrain: xgboost.DMatrix) -> Any:
        """Return gradient and Hessian."""
        return squared_error(y_pred, dtrain)


class GammaTree(TreeObjective):
    """See `gamma`; structures of trees are found with other gradients."""

    def __call__(self, iteration: int, y_pred: Any, dtrain: xgboost.DMatrix) -> Any:
        """Return gradient and Hessian."""
        return tuple(one.reshape(-1, 1) for one in gamma(y_pred, dtrain))

    def split_grad(self, iteration: int, grad: Any, hess: Any) -> Any:
        """Return gradient and Hessian for splits."""
        return np.nan_to_num(grad), hess


def train(
    run: Path | None,
    objective: Callable[..., Any] | None,
    data: xgboost.DMatrix | None = None,
    snapshots: SnapshotSettings | None = None,
    **parameters: Any,
) -> xgboost.Booster:
    """Train with an objective, guarded if there is a run."""
    data = data or rows()
    given = {"nthread": 1, "base_score": 0.5, "seed": 3, **parameters}
    if run is None:
        return xgboost.train(given, data, ROUNDS, obj=objective)
    hook = Hook(run, collections={}, guard="nonfinite", snapshots=snapshots)
    try:
        return xgboost.train(given, data, ROUNDS, obj=objective, callbacks=[hook.xgboost()])
    finally:
        hook.close()
