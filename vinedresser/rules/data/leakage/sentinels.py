"""Whether a column has one value in all rows of a class, and never in those of the other class."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from vinedresser.rules.signals.rows import new_rows

# Number of rows, maximum number, minimum number of each class, and maximum number of columns.
_ROWS, _MOST, _OF_CLASS, _COLUMNS = 256, 1024, 32, 512
# Minimum share of distinct values among the rows of the other class: measured numbers, not the few
# grey levels of a pixel.
_DISTINCT = 0.5


class Sentinels:
    """Finds columns that are only known of one of two classes; a pure fold in bounded memory.

    Such as the days until an event, or its costs, with a fixed number for rows without the event:
    the column tells the class, and is not known before.

    Attributes:
        over: whether the question is settled, or does not arise.
    """

    def __init__(self) -> None:
        self.over = False
        self._seen: set[bytes] = set()
        self._inputs: list[NDArray[np.float64]] = []
        self._labels: list[NDArray[Any]] = []

    @property
    def rows(self) -> int:
        """Number of distinct rows so far."""
        return len(self._seen)

    def add(self, inputs: NDArray[np.float64], labels: NDArray[Any]) -> list[int]:
        """Process a batch and return the columns found, once there are enough rows; else [].

        Args:
            inputs: float64 [rows, columns].
            labels: class numbers 0 and 1, [rows].
        """
        if inputs.shape[1] > _COLUMNS or not set(np.unique(labels).tolist()) <= {0, 1}:
            self.over = True
            return []
        new = new_rows(inputs, self._seen)
        self._inputs.append(inputs[new])
        self._labels.append(labels[new])
        ones = sum(int(label.sum()) for label in self._labels)
        count = sum(len(label) for label in self._labels)
        self.over = count >= _MOST
        if count < _ROWS or min(ones, count - ones) < _OF_CLASS:
            return []
        self.over = True
        return self._columns(np.concatenate(self._inputs), np.concatenate(self._labels))

    def _columns(self, inputs: NDArray[np.float64], labels: NDArray[Any]) -> list[int]:
        groups = inputs[labels == 0], inputs[labels == 1]
        found = set()
        for fixed, measured in (groups, groups[::-1]):
            constant = (fixed == fixed[0]).all(0) & (measured != fixed[0]).all(0)
            for column in constant.nonzero()[0].tolist():
                values = measured[:, column]
                if len(np.unique(values)) >= _DISTINCT * len(values):
                    found.add(column)
        return sorted(found)
