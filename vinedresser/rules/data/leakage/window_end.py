"""Whether the targets are the last values of windows of series that the model is given."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from vinedresser.rules.signals.rows import row_digests

__all__ = ["WindowEnd"]

# Minimum length of a window, number of distinct values of a target, and largest number of pairs of
# targets and features.
_LENGTH, _VALUES, _PAIRS = 4, 8, 4096
# Axes of windows that may be time: [rows, time, features] or [rows, features, time].
_AXES = (1, 2)


class WindowEnd:
    """Compares the targets of a forecast with the last values of its windows; a pure fold.

    A window that ends one step late contains what it should predict. Then each target is, in all
    rows and bit for bit, a value of the last position. Autoencoders have a target for each position
    of the window, and are left out.

    Attributes:
        apart: whether the targets are other values: the question does not arise.
    """

    def __init__(self) -> None:
        self.apart = False
        self._seen: set[bytes] = set()
        # For each axis, whether a target was a feature so far, bool [targets, features].
        self._same: dict[int, NDArray[np.bool_]] = {}
        self._values: list[set[float]] = []

    @property
    def rows(self) -> int:
        """Number of distinct windows so far."""
        return len(self._seen)

    def add(self, inputs: NDArray[Any], labels: NDArray[Any]) -> None:
        """Process a batch.

        Args:
            inputs: windows, [rows, ., .].
            labels: targets, [rows] or [rows, targets].
        """
        if labels.dtype.kind != "f" or labels.ndim > 2 or len(inputs) != len(labels):
            self.apart = True
            return
        targets = labels.reshape(len(labels), -1)
        for axis in _AXES:
            last = inputs.take(-1, axis)
            if inputs.shape[axis] < _LENGTH or targets.shape[1] * last.shape[1] > _PAIRS:
                continue
            same = (targets[:, :, None] == last[:, None, :]).all(0)
            before = self._same.get(axis, np.ones_like(same) if not self._seen else None)
            if before is not None and before.shape == same.shape:
                self._same[axis] = before & same
        self._same = {axis: same for axis, same in self._same.items() if same.any(1).all()}
        self.apart = not self._same
        if self.apart:
            return
        self._seen.update(row_digests(inputs))
        self._values = self._values or [set() for _ in range(targets.shape[1])]
        for known, column in zip(self._values, targets.T, strict=True):
            if len(known) < _VALUES:
                known.update(column.tolist())

    def features(self) -> list[int]:
        """Return the feature that each target is, at the last position; [] if that is open."""
        if self.apart or not self._values or min(len(value) for value in self._values) < _VALUES:
            return []
        same = next(iter(self._same.values()))
        return [int(one) for one in same.argmax(1)]
