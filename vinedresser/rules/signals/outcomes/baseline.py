"""Simple models fitted to the rows of a training, as a baseline for the trained model.

The models are ridge regression and the vote of five nearest neighbours, both evaluated by
leave-one-out in closed form. A repeated row, as in the next epoch, counts once. A network that is
certainly worse after many steps does not learn as it should, whatever its loss does.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from vinedresser.rules.signals.losses.compared import BatchSignal
from vinedresser.rules.signals.losses.loss_formulas import class_indices
from vinedresser.rules.signals.rows import new_rows, row_digests
from vinedresser.store.reading.step import Step

__all__ = ["Baseline", "baseline_gain", "features", "neighbours"]

_Array = NDArray[np.float64]

# Maximum number of rows, and numbers of rows at which the models are fitted.
_MOST_ROWS = 512
_FITTED_AT = (128, 256, _MOST_ROWS)
_MOST_FEATURES = 256
_NEIGHBOURS = 5
_PENALTIES = (1e-2, 1.0, 1e2)


class Baseline(BatchSignal):
    """The gain (see `fit`) of simple models on the rows of the first train steps.

    Unknown for losses that ignore some labels.

    Attributes:
        repeated: whether one of the first rows has come again, as in a second epoch.
    """

    def __init__(self) -> None:
        super().__init__()
        self._seen: set[bytes] = set()
        self._inputs: list[_Array] = []
        self._labels: dict[str, list[NDArray[Any]]] = {}
        self._classes: dict[str, int] = {}
        self._count = 0
        self._gains: dict[str, float | None] = {}
        self._fitted: dict[str, tuple[_Array, NDArray[Any]]] = {}
        self.repeated = False

    def gain(self, loss: str) -> float | None:
        """Return the gain of the better model for a loss; None if unknown (yet)."""
        return None if self.batches.ignores(loss) else self._gains.get(loss)

    def fitted_rows(self, loss: str) -> tuple[_Array, NDArray[Any]] | None:
        """Return the rows that the models were last fitted to; None if there are none (yet).

        Returns:
            Inputs, float64 [rows, features], with at most 256 features, and labels, [rows, ...], of
            any dtype. The number of different rows is at least 128 or 256, or exactly 512.
        """
        return None if self.batches.ignores(loss) else self._fitted.get(loss)

    def update(self, step: Step) -> None:
        """See `Signal.update`."""
        batches = self.batches
        full = self._count >= _MOST_ROWS
        if step.mode != "train" or (full and self.repeated):
            return
        inputs = self._read(batches.inputs)
        if inputs is None or not self._fits(inputs):
            return
        if full:
            self.repeated = not self._seen.isdisjoint(row_digests(inputs))
            return
        before, rows = self._count, len(inputs)
        new = new_rows(inputs, self._seen)
        self.repeated |= len(new) < rows
        for compared in batches.paired:
            if len(compared.labels) == rows:
                self._labels.setdefault(compared.loss, []).append(compared.labels[new])
                shape = compared.predictions.shape
                self._classes[compared.loss] = shape[-1] if len(shape) > 1 else 1
        if not self._labels:
            return
        self._inputs.append(inputs[new])
        self._count += len(new)
        if any(before < limit <= self._count for limit in _FITTED_AT):
            self._fit()

    def _read(self, inputs: Mapping[str, NDArray[Any]]) -> _Array | None:
        """Return the inputs of a batch, float64 [rows, numbers]; None if they are not usable."""
        return features(next(iter(inputs.values()))) if len(inputs) == 1 else None

    def _prepared(self, inputs: _Array) -> _Array:
        """Return what the models are fitted to, float64 [rows, features].

        Args:
            inputs: all rows as `_read` returned them.
        """
        return inputs

    def _fits(self, inputs: _Array) -> bool:
        """Return whether rows have as many features and labels as the first ones.

        Others are of another model that is trained beside it, or images of another size.
        """
        return (not self._inputs or inputs.shape[1] == self._inputs[0].shape[1]) and all(
            one.labels.shape[1:] == self._labels[one.loss][0].shape[1:]
            for one in self.batches.paired
            if one.loss in self._labels
        )

    def _fit(self) -> None:
        inputs = self._prepared(np.concatenate(self._inputs)[:_MOST_ROWS])
        for loss, labels in self._labels.items():
            if len(labels) == len(self._inputs):
                targets = np.concatenate(labels)[:_MOST_ROWS]
                self._fitted[loss] = (inputs, targets)
                self._gains[loss] = baseline_gain(inputs, targets, self._classes[loss])


def features(inputs: NDArray[Any]) -> _Array | None:
    """Return inputs as features for the simple models.

    Args:
        inputs: [rows, ...], any dtype; integers count as tokens, and [rows] as one feature.

    Returns:
        float64 [rows, features], with at most 256 features; None unless all are finite numbers.
    """
    if inputs.ndim < 1 or inputs.dtype.kind in "biu" or inputs.dtype.kind == "c":
        return None
    flat = np.asarray(inputs, np.float64).reshape(len(inputs), -1)
    if flat.shape[1] > _MOST_FEATURES:
        flat = flat[:, np.linspace(0, flat.shape[1] - 1, _MOST_FEATURES).astype(int)]
    return flat if np.isfinite(flat).all() else None


def baseline_gain(inputs: _Array, labels: NDArray[Any], classes: int) -> float | None:
    """Return the leave-one-out gain of ridge regression or of five neighbours, the better one.

    Args:
        inputs: float64 [rows, features].
        labels: [rows], [rows, 1] or [rows, outputs], any dtype; class numbers or one-hot vectors if
            ``classes`` is greater than 1.
        classes: width of the model's predictions.

    Returns:
        1 - error/chance; None if nothing can be gained, or if the labels are not simple targets,
        such as more than two classes at several places.
    """
    numbers = class_indices(labels, classes) if classes > 1 else None
    if numbers is not None and numbers.ndim == 1:
        targets = np.eye(classes)[numbers]
    elif numbers is not None and numbers.max() > 1:
        # Errors of class numbers at several places cannot be compared with shares of right classes.
        return None
    else:
        numbers = None
        targets = np.asarray(labels, np.float64).reshape(len(labels), -1)
        if targets.shape[1] > _MOST_FEATURES:
            return None
    # Targets equal to inputs, as of autoencoders, need no baseline.
    if targets.shape == inputs.shape and np.allclose(targets, inputs):
        return None
    spread = inputs.std(0)
    scaled = (inputs - inputs.mean(0))[:, spread > 0] / spread[spread > 0]
    if not scaled.shape[1]:
        return None
    binary = numbers is None and bool(((targets == 0) | (targets == 1)).all())
    predictions = [*_ridge(scaled, targets), neighbours(scaled, targets)]
    gains = [_gain(prediction, targets, numbers, binary=binary) for prediction in predictions]
    return max((gain for gain in gains if gain is not None), default=None)


def _gain(
    predictions: _Array, targets: _Array, numbers: NDArray[np.int64] | None, *, binary: bool
) -> float | None:
    if numbers is not None:
        wrong = float((predictions.argmax(1) != numbers).sum())
        chance = float(len(numbers) - np.bincount(numbers).max())
    elif binary:
        wrong = float(((predictions > 0.5) != (targets > 0.5)).sum())
        yes = targets.sum(0)
        chance = float(np.minimum(yes, len(targets) - yes).sum())
    else:
        wrong = float(((predictions - targets) ** 2).sum())
        chance = float(((targets - targets.mean(0)) ** 2).sum())
    return 1 - wrong / chance if chance > 0 else None


def _ridge(inputs: _Array, targets: _Array) -> list[_Array]:
    """Return leave-one-out predictions for each penalty, float64 [rows, outputs].

    With the hat matrix H = X (X'X + aI)^-1 X' (X with a column of ones), the leave-one-out residual
    of row i is its residual divided by 1 - H_ii (Hastie, Tibshirani, Friedman, "The Elements of
    Statistical Learning", eq. 7.64). The eigenvectors V of X'X give H for all penalties; a singular
    value decomposition of X costs three times as much, and the penalty makes up for its precision.
    """
    values, vectors = np.linalg.eigh(inputs.T @ inputs)
    turned = inputs @ vectors
    mean = targets.mean(0)
    shares = turned.T @ (targets - mean)
    found = []
    for penalty in _PENALTIES:
        fitted = mean + turned @ (shares / (values + penalty)[:, None])
        leverage = (turned**2 / (values + penalty)).sum(1) + 1 / len(inputs)
        residual = (targets - fitted) / np.maximum(1 - leverage, 1e-6)[:, None]
        found.append(targets - residual)
    return found


def neighbours(inputs: _Array, targets: _Array, asked: _Array | None = None) -> _Array:
    """Return the mean target of the five nearest rows.

    Args:
        inputs: float64 [rows, features].
        targets: float64 [rows, outputs].
        asked: rows to predict, float64 [others, features]; None: ``inputs``, each without itself.

    Returns:
        float64 [rows or others, outputs].
    """
    own = inputs if asked is None else asked
    distances = (own**2).sum(1)[:, None] + (inputs**2).sum(1)[None] - 2 * own @ inputs.T
    if asked is None:
        np.fill_diagonal(distances, np.inf)
    nearest = np.argpartition(distances, _NEIGHBOURS, axis=1)[:, :_NEIGHBOURS]
    return np.asarray(targets[nearest].mean(1), np.float64)
