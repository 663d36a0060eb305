"""Predict the labels of evaluation rows from training labels, without the model."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from vinedresser.rules.signals.losses.compared import BatchSignal
from vinedresser.rules.signals.losses.loss_formulas import class_indices
from vinedresser.rules.signals.outcomes.baseline import Baseline, features, neighbours
from vinedresser.rules.signals.outcomes.fit import error_of_share
from vinedresser.rules.signals.rows import new_rows, row_digests
from vinedresser.store.reading.step import Step

__all__ = ["HeldOut", "Votes"]

# Maximum and minimum number of evaluation rows.
_MOST, _FEWEST = 256, 32


class Votes(NamedTuple):
    """Accuracy of the vote of five neighbours among the training rows.

    Attributes:
        train: accuracy for the training rows, each without itself.
        held_out: accuracy for the evaluation rows.
        error: standard error of the difference.
    """

    train: float
    held_out: float
    error: float


class HeldOut(BatchSignal):
    """The rows of the evaluations, compared with the labelled training rows of `Baseline`."""

    def __init__(self) -> None:
        super().__init__()
        self.baseline = Baseline()
        self._seen: set[bytes] = set()
        self._inputs: list[NDArray[np.float64]] = []
        self._labels: dict[str, list[NDArray[np.int64]]] = {}
        self._votes: dict[str, tuple[tuple[int, int], Votes | None]] = {}

    def update(self, step: Step) -> None:
        """See `Signal.update`."""
        batches = self.batches
        if step.mode != "eval" or len(self._seen) >= _MOST or len(batches.inputs) != 1:
            return
        inputs = features(next(iter(batches.inputs.values())))
        labels = {
            one.loss: numbers
            for one in batches.paired
            if (numbers := _classes(one.labels, one.predictions)) is not None
        }
        if (
            inputs is None
            or not labels
            or any(len(label) != len(inputs) for label in labels.values())
        ):
            return
        if self._labels and (
            set(labels) != set(self._labels) or inputs.shape[1] != self._inputs[0].shape[1]
        ):
            return
        if new := new_rows(inputs, self._seen):
            self._inputs.append(inputs[new])
            for loss, numbers in labels.items():
                self._labels.setdefault(loss, []).append(numbers[new])

    def votes(self, loss: str) -> Votes | None:
        """Return how well training labels agree with each other and with the evaluations.

        Returns:
            The votes; None if there are too few rows, rows in both sets, or no classes.
        """
        fitted = self.baseline.fitted_rows(loss)
        if fitted is None or len(self._seen) < _FEWEST or loss not in self._labels:
            return None
        key = (len(fitted[0]), len(self._seen))
        if loss not in self._votes or self._votes[loss][0] != key:
            self._votes[loss] = (key, self._asked(loss, *fitted))
        return self._votes[loss][1]

    def _asked(self, loss: str, inputs: NDArray[np.float64], labels: NDArray[Any]) -> Votes | None:
        others, wanted = np.concatenate(self._inputs), np.concatenate(self._labels[loss])
        if others.shape[1] != inputs.shape[1] or not self._seen.isdisjoint(row_digests(inputs)):
            return None
        classes = int(max(wanted.max(), np.max(labels))) + 1
        classes = labels.shape[-1] if labels.ndim > 1 and labels.shape[-1] > 1 else classes
        numbers = class_indices(labels, max(classes, 2))
        spread = inputs.std(0)
        kept = spread > 0
        if numbers is None or numbers.ndim != 1 or not kept.any():
            return None
        scaled = (inputs[:, kept] - inputs.mean(0)[kept]) / spread[kept]
        asked = (others[:, kept] - inputs.mean(0)[kept]) / spread[kept]
        targets = np.eye(max(classes, 2))[numbers]
        train = float((neighbours(scaled, targets).argmax(1) == numbers).mean())
        held_out = float((neighbours(scaled, targets, asked).argmax(1) == wanted).mean())
        errors = error_of_share(train, len(numbers)), error_of_share(held_out, len(wanted))
        return Votes(train, held_out, math.hypot(*errors))


def _classes(labels: NDArray[Any], predictions: NDArray[np.float64]) -> NDArray[np.int64] | None:
    """Return labels as class numbers, int64 [rows]; 0 and 1 for a single binary output."""
    width = predictions.shape[-1] if predictions.ndim > 1 else 1
    numbers = class_indices(labels, max(width, 2))
    if numbers is None or numbers.size != len(predictions):
        return None
    return numbers.reshape(-1)
