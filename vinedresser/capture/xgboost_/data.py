"""The rows that predictions, labels and Shapley values are taken on."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray
from xgboost import Booster, DMatrix
from xgboost.core import XGBoostError

from vinedresser.errors import ConfigError
from vinedresser.store.reductions.strided_rows import strided_rows

__all__ = ["DataSet", "named_sets"]

# XGBoost keeps the margins of what it trains and evaluates on. To read all of them takes about as
# long as to predict a tenth of the rows anew by a few trees.
_WORTH_ALL = 10
# Of a quantized matrix all values have to be read to get at some rows.
_READABLE = 50_000_000
# Features of the sample that are kept, missing ones too: 64 MiB.
_KEPT = 1 << 24


class DataSet:
    """Rows with their labels; of many, an evenly strided sample.

    Args:
        name: of the set.
        data: a matrix, or (X, y) as an estimator of `xgboost.sklearn` is fitted with.
        rows: how many rows are looked at, at the most.

    Attributes:
        name: of the set.

    Raises:
        ConfigError: it is neither.
    """

    def __init__(self, name: str, data: Any, rows: int) -> None:
        self.name = name
        # Of arrays the sample is taken now: they are the user's, who may write to them.
        self._given = data if isinstance(data, DMatrix) else _matrix(name, data, rows)
        count = self._given.num_row()
        self._taken = strided_rows(count, rows)
        self._few = count <= _WORTH_ALL * rows

    @cached_property
    def matrix(self) -> DMatrix:
        """What XGBoost predicts on: a matrix of the sample, or the whole where it gives none."""
        return (None if self._taken is None else _cut(self._given, self._taken)) or self._given

    def predictions(self, booster: Booster, *, kept: bool) -> NDArray[np.generic]:
        """Return the booster's predictions: [rows], of several outputs [rows, outputs].

        Args:
            booster: as it is after a round.
            kept: it keeps the margins of a matrix, so that only new trees are gone through, and
                none where it has trained or evaluated on the matrix.
        """
        matrix = self._given if kept and self._few else self.matrix
        return self._sample(matrix, booster.predict(matrix, validate_features=False))

    def labels(self) -> NDArray[np.generic]:
        """Return the labels: [rows], of several outputs [rows, outputs]; empty without any."""
        matrix = self._given if self._few else self.matrix
        return self._sample(matrix, matrix.get_label())

    @cached_property
    def inputs(self) -> NDArray[np.float32]:
        """The features of the sample, [rows, features]: NaN where one is missing.

        Empty of a matrix that does not give them: one of batches in external memory, or a sample of
        more than 16 million features.
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

    def some(self, rows: int) -> DMatrix | None:
        """Return a matrix of some of the rows; None where the set does not give them.

        Args:
            rows: how many at the most.
        """
        matrix = self.matrix
        taken = strided_rows(matrix.num_row(), rows)
        if taken is None:
            return matrix
        return _cut(matrix, taken) or _read(matrix, taken)

    def _sample(self, matrix: DMatrix, values: Any) -> NDArray[np.generic]:
        """Return those of a matrix's values that belong to the sample."""
        array = np.asarray(values)
        whole = self._taken is None or matrix is not self._given or not array.size
        return array if whole else array[self._taken]

    def _of_sample(self, values: NDArray[np.float32]) -> NDArray[np.float32]:
        """Return those rows of `matrix` that belong to the sample."""
        whole = self._taken is None or self.matrix is not self._given
        return values if whole else values[self._taken]


def named_sets(given: Any, rows: int, *, name: str) -> list[DataSet]:
    """Return the data sets that a user gives: none, one, or several by name.

    Args:
        given: None, a `DataSet`'s data, or a mapping of names to such.
        rows: how many rows are looked at, at the most.
        name: of a single one.

    Raises:
        ConfigError: something is no data.
    """
    if given is None:
        return []
    named = given if isinstance(given, Mapping) else {name: given}
    return [DataSet(str(key), data, rows) for key, data in named.items()]


def _matrix(name: str, data: Any, rows: int) -> DMatrix:
    """Return a matrix of some rows of (X, y)."""
    if not isinstance(data, (tuple, list)) or len(data) != 2:
        raise ConfigError(
            f"{name}: a {type(data).__name__} is no data; give an xgboost.DMatrix or (X, y)"
        )
    x, y = data
    taken = strided_rows(len(y), rows)
    if taken is not None:
        x, y = (one.iloc[taken] if hasattr(one, "iloc") else one[taken] for one in (x, y))
    return DMatrix(x, label=y, enable_categorical=True)


def _cut(matrix: DMatrix, rows: NDArray[np.int64]) -> DMatrix | None:
    """Return a matrix of some rows; None of a matrix that XGBoost does not slice.

    That is a quantized one, or one of batches in external memory.
    """
    try:
        return matrix.slice(rows, allow_groups=True)
    except XGBoostError:
        return None


def _read(matrix: DMatrix, rows: NDArray[np.int64]) -> DMatrix | None:
    """Return a matrix of some rows of a quantized one, which falls into the same leaves."""
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
