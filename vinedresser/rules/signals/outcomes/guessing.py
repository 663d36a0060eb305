"""The loss of a model that knows only the frequencies of the labels."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from vinedresser.rules.signals.losses.compared import BatchSignal, Compared
from vinedresser.rules.signals.losses.loss_formulas import FORMULAS
from vinedresser.rules.signals.losses.loss_identity import LossIdentity
from vinedresser.rules.signals.outcomes.fit import Fit
from vinedresser.store.reading.step import Step

__all__ = ["Guessing", "loss_of_constants"]

# Maximum number of kept targets of a loss without a formula for its best constant.
_KEPT = 1 << 15


class Guessing(BatchSignal):
    """The loss of the best constant prediction.

    It is the entropy of the labels for a cross-entropy, the variance for a mean squared error, and
    the mean distance from the median for an absolute error. For a Huber loss, it is that of the
    mean or of the median of the first targets, whichever is lower.
    """

    def __init__(self) -> None:
        super().__init__()
        self.fit = Fit()
        # By loss: number of rows; mean and sum of squared deviations, [outputs].
        self._values: dict[str, tuple[float, NDArray[np.float64], NDArray[np.float64]]] = {}
        # By loss: the first targets, of each batch [rows, outputs].
        self._first: dict[str, list[NDArray[np.float64]]] = {}

    def update(self, step: Step) -> None:
        """See `Signal.update`."""
        if step.mode != "train":
            return
        for compared in self.batches.compared:
            labels = np.asarray(compared.labels)
            if labels.dtype.kind != "f" or not np.isfinite(labels).all():
                continue
            values = labels.astype(np.float64).reshape(len(labels), -1)
            self._add(compared.loss, values)
            first = self._first.setdefault(compared.loss, [])
            if sum(one.size for one in first) + values.size <= _KEPT:
                first.append(values)

    def loss(self, name: str) -> float | None:
        """Return the loss of guessing, in the unit of the loss; None if unknown."""
        series = self.fit.of("train").get(name)
        if series is None or series.identity.reduction in ("sum", "part") or not series.total:
            return None
        if series.identity.loss == "mean_squared_error" and series.task == "values":
            variance = self._variance(name)
            root = variance is not None and series.identity.reduction == "root"
            return math.sqrt(variance) if root and variance is not None else variance
        if series.identity.loss in ("mean_absolute_error", "huber") and series.task == "values":
            return self._of_constant(series.identity.loss, name)
        if not series.identity.loss.endswith("cross_entropy"):
            return None
        shares = series.counts / series.total
        if series.task == "labels":
            return float(np.mean([_entropy(np.array([share, 1 - share])) for share in shares]))
        return _entropy(shares)

    def targets(self, compared: Compared) -> NDArray[Any]:
        """Return the labels of a batch, or of a batch of one row those of the first such batches.

        Args:
            compared: labels of any dtype; numbers are kept if they are floating-point.

        Returns:
            Labels [rows, ...] of any dtype, or float64 [rows, outputs].
        """
        pooled = len(compared.labels) == 1 and self._first.get(compared.loss)
        return self._of_first(compared.loss) if pooled else compared.labels

    def deviation(self, name: str) -> float:
        """Return the standard deviation of the loss of guessing over rows; 0 if unknown.

        For n other rows, divide it by the root of n to get the standard error.
        """
        series = self.fit.of("train").get(name)
        if series is None or series.task not in ("classes", "binary") or not series.total:
            return 0.0
        shares = series.counts[series.counts > 0] / series.total
        squares = float((shares * np.log(shares) ** 2).sum())
        return math.sqrt(max(squares - _entropy(shares) ** 2, 0.0))

    def _add(self, loss: str, values: NDArray[np.float64]) -> None:
        """Process float64 [rows, outputs] (Chan, Golub and LeVeque, Am. Stat. 37, 1983)."""
        mean = values.mean(0)
        squares = ((values - mean) ** 2).sum(0)
        if loss in self._values and self._values[loss][1].shape == mean.shape:
            count, old, sums = self._values[loss]
            total = count + len(values)
            squares = sums + squares + (mean - old) ** 2 * count * len(values) / total
            mean = old + (mean - old) * len(values) / total
            self._values[loss] = (total, mean, squares)
        else:
            self._values[loss] = (float(len(values)), mean, squares)

    def _variance(self, loss: str) -> float | None:
        if loss not in self._values:
            return None
        count, _, squares = self._values[loss]
        return float(squares.mean() / count)

    def _of_constant(self, loss: str, name: str) -> float | None:
        """Return the loss of the better of two constants, the median and the mean."""
        return _least(loss, self._of_first(name)) if self._first.get(name) else None

    def _of_first(self, name: str) -> NDArray[np.float64]:
        """Return the first targets of a loss, of as many outputs as the first, [rows, outputs]."""
        first = self._first[name]
        return np.concatenate([one for one in first if one.shape[1] == first[0].shape[1]])


def loss_of_constants(identity: LossIdentity, compared: Compared) -> float | None:
    """Return the least loss of predictions that are the same for all rows of a batch.

    Args:
        identity: identity of a loss that is a mean.

    Returns:
        See `Guessing`; None if it is not known.
    """
    if identity.loss == "cross_entropy":
        numbers = compared.class_numbers
        return None if numbers is None else _entropy(np.bincount(numbers.ravel()) / numbers.size)
    values = np.asarray(compared.labels, np.float64).reshape(len(compared.labels), -1)
    if identity.loss == "binary_cross_entropy":
        return float(np.mean([_entropy(np.array([one, 1 - one])) for one in values.mean(0)]))
    return _least(identity.loss, values)


def _least(loss: str, targets: NDArray[np.float64]) -> float:
    """Return the loss [rows, outputs] of the better of two constants, the median and the mean."""
    constants = (np.median(targets, 0), targets.mean(0))
    losses = (
        FORMULAS[loss, ""](targets, np.broadcast_to(constant, targets.shape))
        for constant in constants
    )
    return min(float(one.mean()) for one in losses if one is not None)


def _entropy(shares: NDArray[np.float64]) -> float:
    """Return the entropy in nats of a distribution, float64 [classes]."""
    kept = shares[shares > 0]
    return float(-(kept * np.log(kept)).sum())
