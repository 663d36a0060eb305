"""Class numbers that are trained as if they were quantities."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from vinedresser.rules.losses.mismatch import REGRESSION, Mismatch
from vinedresser.rules.signals.losses.loss_identity import LossIdentity
from vinedresser.rules.signals.outcomes.baseline import baseline_gain

__all__ = ["ClassNumbers", "order_of_classes"]

# Minimum number of rows and of classes: five classes form ten pairs, whose order rarely correlates
# by chance.
_ROWS = 256
_FEWEST_CLASSES, _MOST_CLASSES = 5, 100
_ROWS_OF_CLASS = 8
# Minimum gain of baseline models on the classes.
_LEAST_GAIN = 0.3


class ClassNumbers:
    """A squared or absolute error is used on class numbers: 3 is no closer to 4 than to 9.

    The targets of at least 256 training rows are integers from 0 or 1 without a gap, at least five
    of them, and baseline models separate them as classes (gain of 0.3). They are quantities if rows
    with neighbouring numbers have similar inputs. The correlation over all pairs of classes of the
    distance of their mean inputs (features of unit variance) with the difference of their numbers
    (the statistic of Mantel, Cancer Research 27, 1967) tells. Quantities binned into 4 to 10 steps
    have 0.88 and more, hours of the day 0.61, digits -0.24; random classes are below 0.43 (six
    classes) and 0.32 (eight classes) in 95 of 100 data sets.

    Args:
        order: correlation below which the numbers are no quantities.
    """

    def __init__(self, order: float) -> None:
        self.order = order
        self._asked: dict[str, int] = {}

    def detect(
        self,
        loss: str,
        identity: LossIdentity | None,
        rows: tuple[NDArray[np.float64], NDArray[Any]] | None,
    ) -> Mismatch | None:
        """Return the mismatch of the targets of a loss, asked once for each number of rows.

        Args:
            loss: name of the loss.
            rows: input rows, float64 [rows, features], and their targets (`Baseline.fitted_rows`).
        """
        if identity is None or identity.loss not in REGRESSION or rows is None:
            return None
        count = len(rows[0])
        if count < _ROWS or count == self._asked.get(loss):
            return None
        self._asked[loss] = count
        return self._of(*rows)

    def _of(self, inputs: NDArray[np.float64], labels: NDArray[Any]) -> Mismatch | None:
        numbers = _class_numbers(labels)
        if numbers is None:
            return None
        classes = int(numbers.max()) + 1
        gain = baseline_gain(inputs, numbers, classes)
        order = order_of_classes(inputs, numbers)
        if gain is None or gain < _LEAST_GAIN or not order < self.order:
            return None
        return Mismatch(
            "class_numbers",
            sure=False,
            statistic="order",
            value=order,
            threshold=self.order,
            seen=f"the targets of {len(numbers)} rows are {classes} integers, simple models "
            f"separate {gain:.0%} of them as classes, and rows with neighbouring numbers are no "
            f"more similar than others (correlation {order:.2f})",
            cause="a loss for quantities receives class numbers, whose order is meaningless",
            remedy=f"use {classes} outputs and a categorical cross-entropy",
            of="labels",
        )


def _class_numbers(labels: NDArray[Any]) -> NDArray[np.int64] | None:
    """Return labels as class numbers from 0, int64 [rows]; None if they cannot be classes."""
    values = np.asarray(labels, np.float64)
    if values.size != len(values) or not np.isfinite(values).all():
        return None
    values = values.ravel()
    whole = bool((values == np.rint(values)).all())
    if not whole or values.min() not in (0, 1) or values.max() > _MOST_CLASSES:
        return None
    numbers = (values - values.min()).astype(np.int64)
    counts = np.bincount(numbers)
    return numbers if len(counts) >= _FEWEST_CLASSES and counts.min() >= _ROWS_OF_CLASS else None


def order_of_classes(inputs: NDArray[np.float64], numbers: NDArray[np.int64]) -> float:
    """Return the correlation of the distance of classes with the difference of their numbers.

    Args:
        inputs: input rows, float64 [rows, features].
        numbers: class numbers from 0 without a gap, int64 [rows].

    Returns:
        Correlation over all pairs of classes; 1 if it is undefined.
    """
    spread = inputs.std(0)
    scaled = inputs[:, spread > 0] / spread[spread > 0]
    means = np.stack([scaled[numbers == one].mean(0) for one in range(int(numbers.max()) + 1)])
    one, other = np.triu_indices(len(means), 1)
    distances = np.sqrt(((means[one] - means[other]) ** 2).sum(1))
    if not distances.std() > 0:
        return 1.0
    return float(np.corrcoef(distances, other - one)[0, 1])
