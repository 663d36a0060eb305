"""Small XGBoost trainings on real data, one for each kind of model."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import xgboost
from numpy.typing import NDArray
from sklearn.datasets import load_breast_cancer, load_diabetes, load_digits

from vinedresser.capture import SaveConfig

__all__ = [
    "EVERYTHING",
    "PROBLEMS",
    "Batches",
    "Problem",
    "breast_cancer",
    "diabetes",
    "digits",
    "everything",
]

EVERYTHING = (
    "feature_importance",
    "trees",
    "shap",
    "predictions",
    "labels",
    "weights",
    "biases",
)

Rows = tuple[NDArray[np.float64], NDArray[Any]]


def everything(every: int = 1) -> dict[str, SaveConfig]:
    """Return collections that capture all tensors of a booster."""
    return {name: SaveConfig(every=every) for name in EVERYTHING}


def breast_cancer() -> Rows:
    """Return 569 tumors with 30 measurements, benign or not."""
    x, y = load_breast_cancer(return_X_y=True)
    return x, y


def diabetes() -> Rows:
    """Return 442 patients with 10 measurements and the progression of their disease."""
    x, y = load_diabetes(return_X_y=True)
    return x, y


def digits() -> Rows:
    """Return 600 digits of 8 x 8 pixels."""
    x, y = load_digits(return_X_y=True)
    return x[:600], y[:600]


def squared_error(margin: NDArray[Any], data: xgboost.DMatrix) -> tuple[Any, Any]:
    """Return gradient and Hessian of half the squared error."""
    return margin - data.get_label(), np.ones_like(margin)


class Batches(xgboost.DataIter):
    """Rows in three batches.

    Args:
        rows: x and y.
        cache_prefix: path prefix of the external memory; None to keep the batches in memory.
    """

    def __init__(self, rows: Rows, cache_prefix: str | None = None) -> None:
        self._rows = rows
        self._next = 0
        super().__init__(cache_prefix=cache_prefix)

    def next(self, input_data: Callable[..., None]) -> bool:
        """Pass the next batch to XGBoost."""
        if self._next == 3:
            return False
        x, y = self._rows
        input_data(data=x[self._next :: 3], label=y[self._next :: 3])
        self._next += 1
        return True

    def reset(self) -> None:
        """Restart the iteration."""
        self._next = 0


@dataclass(frozen=True)
class Problem:
    """A training.

    Attributes:
        params: of the booster.
        make: returns the training data.
        arguments: for `xgboost.train`.
        rounds: of boosting.
    """

    params: dict[str, Any]
    make: Callable[[], xgboost.DMatrix]
    arguments: dict[str, Any] = field(default_factory=dict)
    rounds: int = 6

    def train(self, *callbacks: Any, data: xgboost.DMatrix | None = None) -> xgboost.Booster:
        """Train on one thread, evaluating on the training data."""
        matrix = self.make() if data is None else data
        return xgboost.train(
            {"nthread": 1, "seed": 0, **self.params},
            matrix,
            self.rounds,
            evals=[(matrix, "train")],
            verbose_eval=False,
            callbacks=list(callbacks),
            **self.arguments,
        )


def _binary() -> xgboost.DMatrix:
    return xgboost.DMatrix(*breast_cancer())


def _classes() -> xgboost.DMatrix:
    return xgboost.DMatrix(*digits())


def _values() -> xgboost.DMatrix:
    return xgboost.DMatrix(*diabetes())


def _two_outputs() -> xgboost.DMatrix:
    x, y = diabetes()
    return xgboost.DMatrix(x, np.stack([y, -y], axis=1))


def _ranked() -> xgboost.DMatrix:
    x, y = digits()
    return xgboost.DMatrix(x, y.clip(max=4), qid=np.arange(len(y)) // 20)


_LOGISTIC = {"objective": "binary:logistic"}
_SOFTPROB = {"objective": "multi:softprob", "num_class": 10, "max_depth": 3}

PROBLEMS = {
    "binary": Problem(_LOGISTIC, _binary),
    "sampled rows and columns": Problem(
        {**_LOGISTIC, "subsample": 0.5, "colsample_bynode": 0.5}, _binary
    ),
    "classes": Problem(_SOFTPROB, _classes, rounds=3),
    "forest of each class": Problem(
        {**_SOFTPROB, "num_parallel_tree": 2, "subsample": 0.5}, _classes, rounds=2
    ),
    "dart": Problem({**_LOGISTIC, "booster": "dart", "rate_drop": 0.4, "subsample": 0.7}, _binary),
    "linear": Problem({"booster": "gblinear", "feature_selector": "shuffle"}, _values),
    "linear of classes": Problem(
        {"objective": "multi:softprob", "num_class": 10, "booster": "gblinear"}, _classes, rounds=2
    ),
    "exact, pruned": Problem({"tree_method": "exact", "gamma": 20000.0, "max_depth": 5}, _values),
    "approx by loss": Problem(
        {"tree_method": "approx", "grow_policy": "lossguide", "max_leaves": 7}, _values
    ),
    "absolute error": Problem({"objective": "reg:absoluteerror"}, _values),
    "two outputs": Problem({}, _two_outputs),
    "vector leaves": Problem({"multi_strategy": "multi_output_tree", "max_depth": 2}, _two_outputs),
    "ranking": Problem(
        {"objective": "rank:ndcg", "lambdarank_pair_method": "mean"}, _ranked, rounds=3
    ),
    "own objective": Problem({"max_depth": 3}, _values, {"obj": squared_error}),
    "quantized": Problem(
        {**_LOGISTIC, "subsample": 0.5}, lambda: xgboost.QuantileDMatrix(*breast_cancer())
    ),
    "from an iterator": Problem(
        _LOGISTIC, lambda: xgboost.QuantileDMatrix(Batches(breast_cancer()))
    ),
}
