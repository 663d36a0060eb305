"""The labels and predictions of a batch, as the loss compared them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from vinedresser.rules.need import Need
from vinedresser.rules.signals.base import Signal
from vinedresser.rules.signals.bounded import bounded_array
from vinedresser.rules.signals.losses.loss_formulas import class_indices
from vinedresser.store.reductions.strided_rows import strided_rows

if TYPE_CHECKING:
    from vinedresser.store.reading.step import Step

__all__ = ["BatchSignal", "Batches", "Compared"]

_INPUTS_STOP = 2000
_LABELS, _PREDICTIONS, _LOSSES = "labels/", "predictions/", "losses/"
_OBJECTIVE = "objective"


class Compared(NamedTuple):
    """What a loss compared in one step; of a large batch, some evenly strided rows.

    Attributes:
        loss: the loss's name without its kind, such as "CrossEntropyLoss", or "loss" where a loop
            or Keras reported it. Of an evaluation, the name that it has in training: XGBoost calls
            each loss by the data set too.
        labels: [rows, ...], of any dtype.
        predictions: [rows, ...], float64; classes are the last axis.
    """

    loss: str
    labels: NDArray[Any]
    predictions: NDArray[Any]

    @property
    def classes(self) -> int:
        """Length of the last axis of the predictions; 1 if they are [rows]."""
        return self.predictions.shape[-1] if self.predictions.ndim > 1 else 1

    @property
    def class_numbers(self) -> NDArray[np.int64] | None:
        """Labels as class numbers, int64 [rows, ...]; None unless each prediction has one."""
        numbers = class_indices(self.labels, self.classes) if self.classes > 1 else None
        matches = numbers is not None and numbers.shape == self.predictions.shape[:-1]
        return numbers if matches else None


class Batches(Signal):
    """What the model saw, said and should have said in the last step, where it was captured.

    Args:
        every: train steps from one look to the next; each evaluation is looked at.
        rows: of a batch, at the most.

    Attributes:
        compared: of each loss, labels and predictions of the last step; [] where none are there.
        inputs: by name, what the models were called with in the last step: [rows, ...].
    """

    def __init__(self, every: int = 5, rows: int = 64) -> None:
        self.every = every
        self.rows = rows
        self.compared: list[Compared] = []
        self.inputs: dict[str, NDArray[Any]] = {}
        self._names: dict[str, str] = {}
        self._trained: set[str] = set()
        self.needs = tuple(
            Need(
                collection,
                every=every,
                modes=("train", "eval"),
                tensor=True,
                rows=rows,
                required=False,
                stop=stop,
            )
            for collection, stop in (
                ("labels", None),
                ("predictions", None),
                # For the simple models that the outcome is held against; they need no more.
                ("model_inputs", _INPUTS_STOP),
            )
        )

    def update(self, step: Step) -> None:
        """See `Signal.update`."""
        self.compared, self.inputs = [], {}
        if step.rank != 0 or not self.needs[0].due(step):
            return
        predictions = step.tensors_of("predictions")
        for name in step.tensors_of("labels"):
            loss = name.removeprefix(_LABELS)
            if f"{_PREDICTIONS}{loss}" in predictions:
                self._compare(step, loss)
        for name in step.tensors_of("model_inputs"):
            self.inputs[name] = _rows(step.tensor(name), self.rows)

    def tensor(self, kind: str, loss: str) -> str:
        """Return the full name of the labels or predictions of a loss.

        Args:
            kind: "labels" or "predictions".
            loss: its name without a kind.
        """
        return f"{kind}/{self._names.get(loss, loss)}"

    def _compare(self, step: Step, loss: str) -> None:
        labels = _rows(step.tensor(f"{_LABELS}{loss}"), self.rows)
        predictions = _rows(step.tensor(f"{_PREDICTIONS}{loss}"), self.rows)
        if labels.ndim and predictions.ndim and len(labels) == len(predictions) > 0:
            wide = _classes_last(labels, np.asarray(predictions, np.float64))
            name = self._named(step, loss)
            self.compared.append(Compared(name, labels, wide))
            if step.mode == "train" or name not in self._names:
                self._names[name] = loss

    def _named(self, step: Step, loss: str) -> str:
        """Return the loss of some labels, of an evaluation as it is called in training."""
        name = _loss_of(step, loss)
        if step.mode == "train":
            self._trained.add(name)
        elif name not in self._trained and len(self._trained) == 1:
            (name,) = self._trained
        return name


class BatchSignal(Signal):
    """A signal computed from the batches of `Batches`; its parameters are those of `Batches`."""

    def __init__(self, every: int = 5, rows: int = 64) -> None:
        self.every = every
        self.rows = rows
        self.batches = Batches(every, rows)


def _loss_of(step: Step, name: str) -> str:
    """Return the loss of some labels, which may be called by the batch or an output instead."""
    losses = [loss.removeprefix(_LOSSES) for loss in step.scalars_of("losses")]
    for loss in (name, f"{name}_loss"):
        if loss in losses:
            return loss
    if len(losses) > 1:
        # What an estimator of scikit-learn says of itself, beside what was computed of these rows.
        losses = [loss for loss in losses if loss != _OBJECTIVE]
    return losses[0] if len(losses) == 1 else name


def _classes_last(labels: NDArray[Any], predictions: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return predictions with the classes, which torch has second, as the last axis."""
    second_left_out = predictions.shape[:1] + predictions.shape[2:]
    if labels.ndim > 1 and second_left_out == labels.shape != predictions.shape[:-1]:
        return np.moveaxis(predictions, 1, -1)
    return predictions


def _rows(values: NDArray[Any], most: int) -> NDArray[Any]:
    """Return the rows that are looked at, of those captured; numbers beyond 1e100 are cut."""
    chosen = strided_rows(len(values), most) if values.ndim else None
    return bounded_array(values if chosen is None else values[chosen])
