"""Sampled rows for predictions, labels and Shapley values."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray
from xgboost import Booster, DMatrix
from xgboost.core import XGBoostError

from vinedresser.errors import ConfigError
from vinedresser.store.reductions.sampling import strided_rows

__all__ = ["DataSet", "named_sets"]

_Array = NDArray[np.float64]

# XGBoost caches the margins of training and evaluation data. Reading all of them takes about as
# long as predicting a tenth of the rows with a few trees.
_WORTH_ALL = 10
# Values of a quantized matrix that may be read: rows cannot be read separately.
_READABLE = 50_000_000
# By metric, the loss of each row, [rows], of labels [rows] and predictions, which are margins for
# cross-entropies: [rows], or [rows, classes].
_OF_MARGINS = ("logloss", "mlogloss")
_ROW_LOSSES: dict[str, Callable[[_Array, _Array], _Array]] = {
    "rmse": lambda labels, predicted: np.square(labels - predicted),
    "mae": lambda labels, predicted: np.abs(labels - predicted),
    "logloss": lambda labels, margins: np.logaddexp(0, margins) - labels * margins,
    "mlogloss": lambda labels, margins: (
        np.logaddexp.reduce(margins, axis=1) - margins[np.arange(len(labels)), labels.astype(int)]
    ),
}
# Maximum size of the stored features of a sample, including missing ones: 64 MiB.
_KEPT = 1 << 24


class DataSet:
    """Rows with their labels; an evenly strided sample if there are too many.

    Args:
        data: a DMatrix, or (X, y) as for the `fit` of an estimator of `xgboost.sklearn`.
        rows: maximum number of rows.

    Raises:
        ConfigError: `data` is neither.
    """

    def __init__(self, name: str, data: Any, rows: int) -> None:
        self.name = name
        # Arrays are sampled immediately, since the user may modify them.
        self._given = data if isinstance(data, DMatrix) else _matrix(name, data, rows)
        count = self._given.num_row()
        self._taken = strided_rows(count, rows)
        self._few = count <= _WORTH_ALL * rows

    @cached_property
    def matrix(self) -> DMatrix:
        """The matrix to predict on: the sample, or all rows if it cannot be sliced."""
        return (None if self._taken is None else _cut(self._given, self._taken)) or self._given

    def predictions(self, booster: Booster, *, kept: bool) -> NDArray[np.generic]:
        """Return the booster's predictions: float32 [rows], or [rows, outputs].

        Args:
            booster: the booster after a round.
            kept: whether it caches the margins of a matrix, so that at most new trees are
                evaluated.
        """
        matrix = self._given if kept and self._few else self.matrix
        return self._sample(matrix, booster.predict(matrix, validate_features=False))

    def labels(self) -> NDArray[np.generic]:
        """Return the labels: float32 [rows], or [rows, outputs]; empty if there are none."""
        matrix = self._given if self._few else self.matrix
        return self._sample(matrix, matrix.get_label())

    def loss(self, booster: Booster, metric: str, *, kept: bool) -> float:
        """Return what XGBoost would report as a metric of all rows; NaN if that is not known.

        Only of margins that XGBoost caches: others would take longer in each round.

        Args:
            booster: the booster after a round.
            metric: "logloss", "mlogloss", "rmse" or "mae"; others are not known.
            kept: see `predictions`.
        """
        if not (kept and self._few and metric in _ROW_LOSSES):
            return math.nan
        labels = np.asarray(self._given.get_label(), np.float64)
        # Predictions are no probabilities with multi:softmax.
        predicted = booster.predict(
            self._given, output_margin=metric in _OF_MARGINS, validate_features=False
        )
        outputs = 2 if metric == "mlogloss" else 1
        if not labels.size or labels.shape != predicted.shape[:1] or predicted.ndim != outputs:
            return math.nan
        losses = _ROW_LOSSES[metric](labels, np.asarray(predicted, np.float64))
        weights = np.asarray(self._given.get_weight(), np.float64)
        mean = np.average(losses, weights=weights if weights.size else None)
        return float(np.sqrt(mean) if metric == "rmse" else mean)

    @cached_property
    def inputs(self) -> NDArray[np.float32]:
        """The features of the sample: float32 [rows, features], NaN for missing values.

        Empty if they cannot be read (batches in external memory) or are more than 16 million.
        """
        matrix, none = self.matrix, np.zeros((0, 0), np.float32)
        shape = (matrix.num_row(), matrix.num_col())
        if max(shape[0] * shape[1], matrix.num_nonmissing() // 4) > _KEPT:
            return none
        try:
            given = matrix.get_data().tocoo()
        except XGBoostError:
            return none
        values = np.full(shape, np.nan, np.float32)
        values[given.row, given.col] = given.data
        return self._of_sample(values)

    def share_of(self, train: DataSet) -> float:
        """Return the share of its rows whose features are those of a training row.

        Only a sample of the training rows may be known; the share is then estimated from it, unless
        more rows are in the sample than could be by chance: evenly strided samples of a set and its
        copy have the same rows.

        Returns:
            0 to 1; NaN if the features of one of the sets cannot be read.
        """
        known = {row.tobytes() for row in train.inputs}
        if not known or not len(self.inputs):
            return math.nan
        found = sum(row.tobytes() in known for row in self.inputs) / len(self.inputs)
        sampled = len(train.inputs) / train._given.num_row()
        by_chance = sampled + 4 * math.sqrt(sampled / len(self.inputs))
        return found if found > by_chance else min(1.0, found / sampled)

    def some(self, rows: int) -> DMatrix | None:
        """Return a matrix of at most `rows` rows; None if it cannot be sliced."""
        matrix = self.matrix
        taken = strided_rows(matrix.num_row(), rows)
        if taken is None:
            return matrix
        return _cut(matrix, taken) or _read(matrix, taken)

    def _sample(self, matrix: DMatrix, values: Any) -> NDArray[np.generic]:
        """Select the rows of the sample from the values of a matrix."""
        array = np.asarray(values)
        whole = self._taken is None or matrix is not self._given or not array.size
        return array if whole else array[self._taken]

    def _of_sample(self, values: NDArray[np.float32]) -> NDArray[np.float32]:
        """Select the rows of the sample from the values of `self.matrix`."""
        whole = self._taken is None or self.matrix is not self._given
        return values if whole else values[self._taken]


def named_sets(given: Any, rows: int, *, name: str) -> list[DataSet]:
    """Return the data sets given by the user.

    Args:
        given: None, the data of a `DataSet`, or a mapping of names to data.
        rows: maximum number of rows of each set.
        name: name of a single set.

    Raises:
        ConfigError: A value is not data.
    """
    if given is None:
        return []
    named = given if isinstance(given, Mapping) else {name: given}
    return [DataSet(str(key), data, rows) for key, data in named.items()]


def _matrix(name: str, data: Any, rows: int) -> DMatrix:
    """Return a matrix of at most `rows` rows of (X, y)."""
    if not isinstance(data, (tuple, list)) or len(data) != 2:
        raise ConfigError(
            f"{name}: must be an xgboost.DMatrix or (X, y), not a {type(data).__name__}"
        )
    x, y = data
    taken = strided_rows(len(y), rows)
    if taken is not None:
        x, y = (one.iloc[taken] if hasattr(one, "iloc") else one[taken] for one in (x, y))
    return DMatrix(x, label=y, enable_categorical=True)


def _cut(matrix: DMatrix, rows: NDArray[np.int64]) -> DMatrix | None:
    """Slice a matrix; return None if it is quantized or in external memory."""
    try:
        return matrix.slice(rows, allow_groups=True)
    except XGBoostError:
        return None


def _read(matrix: DMatrix, rows: NDArray[np.int64]) -> DMatrix | None:
    """Return a matrix of some rows of a quantized one; its rows reach the same leaves."""
    if matrix.num_nonmissing() > _READABLE:
        return None
    try:
        values = matrix.get_data()[rows]
    except XGBoostError:
        return None
    margin = np.asarray(matrix.get_base_margin())
    return DMatrix(
        values,
        base_margin=margin[rows] if margin.size else None,
        feature_names=matrix.feature_names,
        feature_types=matrix.feature_types,
        enable_categorical=True,
    )
