"""Whether the outputs depend on the positions of rows in the batch instead of their inputs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from vinedresser.rules.signals.losses.compared import Compared
from vinedresser.rules.signals.rows import Positions

# Number of batches that are compared, and minimum number of rows of each.
_BATCHES, _ROWS = 12, 8
# Maximum share that positions explain of inputs and labels of shuffled rows.
_SHUFFLED = 0.3
# Minimum spread of the outputs over rows, relative to their size: less is rounding.
_SPREAD = 1e-3
_MOST_FEATURES = 256


class OutputPositions:
    """How much positions explain of outputs, labels and inputs; the first batches of one size.

    Outputs and labels are compared around the mean of their batch, since weights change from one to
    the next.
    """

    def __init__(self) -> None:
        self._outputs, self._labels, self._inputs = Positions(), Positions(), Positions()
        self._spread = 0.0

    def add(self, inputs: NDArray[np.float64], compared: Sequence[Compared]) -> None:
        """Process a train step with one loss; ignore others, and batches that are not complete.

        Args:
            inputs: inputs of the model, float64 [rows, features].
            compared: labels and predictions of each loss.
        """
        if len(compared) != 1 or self._outputs.batches >= _BATCHES:
            return
        (one,) = compared
        # Of many rows, those of outputs may be others than those of inputs, such as tokens.
        if not one.complete or len(one.labels) != len(inputs) or len(inputs) < _ROWS:
            return
        if one.labels.dtype.kind not in "biuf":
            return
        outputs, labels = _centred(one.predictions), _centred(one.labels)
        size = float(np.abs(one.predictions).mean())
        if not all(np.isfinite(part).all() for part in (outputs, labels)) or not size > 0:
            return
        before = self._outputs.batches
        self._outputs.add(outputs)
        if self._outputs.batches > before:
            self._labels.add(labels)
            self._inputs.add(_fewer(inputs))
            self._spread += float(outputs.std()) / size / _BATCHES

    def explained(self) -> float:
        """Return the share of the outputs' variance that positions explain; 0 if not known.

        It is 0 unless positions tell nothing about inputs and labels.
        """
        if self._outputs.batches < _BATCHES or self._spread < _SPREAD:
            return 0.0
        if self._inputs.batches < _BATCHES or self._labels.batches < _BATCHES:
            return 0.0
        if max(self._inputs.explained(), self._labels.explained()) > _SHUFFLED:
            return 0.0
        return self._outputs.explained()


def _centred(values: NDArray[Any]) -> NDArray[np.float64]:
    """Return values around the mean of their batch, float64 [rows, features]."""
    flat = _fewer(np.asarray(values, np.float64).reshape(len(values), -1))
    centred: NDArray[np.float64] = flat - flat.mean(0)
    return centred


def _fewer(rows: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return at most 256 evenly strided features."""
    if rows.shape[1] <= _MOST_FEATURES:
        return rows
    return rows[:, np.linspace(0, rows.shape[1] - 1, _MOST_FEATURES).astype(int)]
