"""Labels and predictions of a batch, as the loss compares them."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from vinedresser.rules.need import Need
from vinedresser.rules.signals.base import Signal
from vinedresser.rules.signals.bounded import bounded_array
from vinedresser.rules.signals.losses.loss_formulas import class_indices
from vinedresser.rules.signals.rows import are_tokens
from vinedresser.store.reading.step import Step
from vinedresser.store.records import RunRecord
from vinedresser.store.reductions.sampling import strided_rows

__all__ = ["INPUTS_STOP", "ROWS", "BatchSignal", "Batches", "Compared"]

# Maximum rows of a batch.
ROWS = 64
# Step from which on inputs are not needed any more.
INPUTS_STOP = 2000
_MOST_CLASSES = 100
_LABELS, _PREDICTIONS, _LOSSES = "labels/", "predictions/", "losses/"
_OBJECTIVE = "objective"
# Settings of torch and Keras.
_SETTINGS = ("ignore_index", "ignore_class")
# Classes and functions of torch that refuse all labels beyond the outputs but the ignored one.
_STRICT = frozenset({"CrossEntropyLoss", "NLLLoss", "cross_entropy", "nll_loss"})
# What torch ignores unless another label is set, and what masked labels of Keras are recorded as.
_USUAL = -100


class Compared(NamedTuple):
    """Labels and predictions of one loss in one step; evenly strided rows of a large batch.

    Attributes:
        loss: name of the loss without its collection, such as "CrossEntropyLoss", or "loss" if a
            loop or Keras reported it. In evaluations the name of training is used, since XGBoost
            adds the data set to the names.
        labels: [rows, ...], any dtype.
        predictions: float64 [rows, ...]; the last axis holds the classes.
        complete: whether these are all rows of the batch.
    """

    loss: str
    labels: NDArray[Any]
    predictions: NDArray[Any]
    complete: bool = True

    @classmethod
    def of(cls, loss: str, labels: NDArray[Any], predictions: NDArray[Any]) -> Compared | None:
        """Return what a loss compares, with the classes as the last axis.

        Args:
            loss: see above.
            labels: as the loss function takes them, any dtype.
            predictions: the same; floating-point numbers.

        Returns:
            None unless both have the same number of rows, at least 1.
        """
        if not labels.ndim or not predictions.ndim or not len(labels) == len(predictions) > 0:
            return None
        wide = _classes_last(labels, np.asarray(predictions, np.float64))
        return cls(loss, *_without_height(labels, wide))

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

    @property
    def confusion(self) -> NDArray[np.int64] | None:
        """The confusion matrix, int64 [true classes, predicted classes].

        None without classes or with more than 100.
        """
        numbers = self.class_numbers if self.classes <= _MOST_CLASSES else None
        if numbers is None:
            return None
        cells = numbers.ravel() * self.classes + self.predictions.argmax(-1).ravel()
        return np.bincount(cells, minlength=self.classes**2).reshape(self.classes, self.classes)


class Batches(Signal):
    """Captured inputs, labels and predictions of the last step.

    Args:
        every: train steps between two captures; each evaluation is captured.

    Attributes:
        compared: labels and predictions of each loss in the last step; [] if there are none. If
            the loss ignores some labels (`_IgnoredLabels`), rows are the others, [labels] and
            [labels, classes].
        paired: the same with all labels, if their rows are those of the inputs
            (`RunRecord.unpaired`).
        labels: labels of each loss in the last step by its name, [rows, ...], any dtype, also of
            losses that compare outputs with each other.
        inputs: model inputs of the last step by name, [rows, ...], any dtype.
    """

    def __init__(self, every: int = 5) -> None:
        self.every = every
        self.compared: list[Compared] = []
        self.paired: list[Compared] = []
        self.labels: dict[str, NDArray[Any]] = {}
        self.inputs: dict[str, NDArray[Any]] = {}
        self._names: dict[str, str] = {}
        self._trained: set[str] = set()
        self._ignored = _IgnoredLabels()
        self._unpaired: frozenset[str] = frozenset()
        self.needs = tuple(
            Need(
                collection,
                every=every,
                modes=("train", "eval"),
                tensor=True,
                rows=ROWS,
                required=False,
                stop=stop,
            )
            for collection, stop in (
                ("labels", None),
                ("predictions", None),
                # For the simple models of `Baseline`, which need no more.
                ("model_inputs", INPUTS_STOP),
            )
        )

    def on_record(self, info: RunRecord) -> None:
        """See `Signal.on_record`."""
        self._ignored.on_record(info)
        self._unpaired = frozenset(info.unpaired)

    def update(self, step: Step) -> None:
        """See `Signal.update`."""
        self.compared, self.paired, self.labels, self.inputs = [], [], {}, {}
        if step.rank != 0 or not self.needs[0].due(step):
            return
        predictions = step.tensors_of("predictions")
        for name in step.tensors_of("labels"):
            loss = name.removeprefix(_LABELS)
            self.labels[loss] = _rows(step.tensor(name))
            if f"{_PREDICTIONS}{loss}" in predictions:
                self._compare(step, loss)
        for name in step.tensors_of("model_inputs"):
            self.inputs[name] = _rows(step.tensor(name))

    def required(self, *collections: str) -> tuple[Need, ...]:
        """Return the needs of a rule that has nothing to look at without some of these data.

        Args:
            collections: any of "labels", "predictions" and "model_inputs".
        """
        chosen = (need for need in self.needs if need.collection in collections)
        return tuple(replace(need, required=True) for need in chosen)

    @property
    def of_text(self) -> bool:
        """Whether the labels are tokens, several for each row of input tokens."""
        rows = [len(inputs) for inputs in self.inputs.values() if are_tokens(inputs)]
        return bool(rows) and any(
            one.labels.ndim > 1 or len(one.labels) > max(rows) for one in self.paired
        )

    def ignores(self, loss: str) -> bool:
        """Return whether a loss has ignored labels so far."""
        return self._ignored.ignores(loss)

    def tensor(self, kind: str, loss: str) -> str:
        """Return the full name of the labels or predictions of a loss.

        Args:
            kind: "labels" or "predictions".
        """
        return f"{kind}/{self._names.get(loss, loss)}"

    def _compare(self, step: Step, loss: str) -> None:
        labels = self.labels[loss]
        predictions = _rows(step.tensor(f"{_PREDICTIONS}{loss}"))
        if (one := Compared.of(self._named(step, loss), labels, predictions)) is not None:
            one, name = one._replace(complete=len(labels) < ROWS), one.loss
            if name not in self._unpaired:
                self.paired.append(one)
            kept = self._ignored.kept(name, one.labels, one.predictions)
            if kept is not None:
                one = one._replace(labels=one.labels[kept], predictions=one.predictions[kept])
            if len(one.labels):
                self.compared.append(one)
            if step.mode == "train" or name not in self._names:
                self._names[name] = loss

    def _named(self, step: Step, loss: str) -> str:
        """Return the name of the loss of some labels; in an evaluation, its name in training."""
        name = _loss_of(step, loss)
        if step.mode == "train":
            self._trained.add(name)
        elif name not in self._trained and len(self._trained) == 1:
            (name,) = self._trained
        return name


class BatchSignal(Signal):
    """A signal computed from `Batches`."""

    def __init__(self) -> None:
        self.batches = Batches()


def _loss_of(step: Step, name: str) -> str:
    """Return the loss of some labels, which may be named after the batch or an output."""
    losses = [loss.removeprefix(_LOSSES) for loss in step.scalars_of("losses")]
    for loss in (name, f"{name}_loss"):
        if loss in losses:
            return loss
    if len(losses) > 1:
        # The loss that a scikit-learn estimator reports, beside the one computed for these rows.
        losses = [loss for loss in losses if loss != _OBJECTIVE]
    return losses[0] if len(losses) == 1 else name


def _classes_last(labels: NDArray[Any], predictions: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return predictions with the classes as the last axis; in torch they are the second."""
    second_left_out = predictions.shape[:1] + predictions.shape[2:]
    if labels.ndim > 1 and second_left_out == labels.shape != predictions.shape[:-1]:
        return np.moveaxis(predictions, 1, -1)
    return predictions


def _without_height(
    labels: NDArray[Any], predictions: NDArray[np.float64]
) -> tuple[NDArray[Any], NDArray[np.float64]]:
    """Return sequences that torch's cross-entropy has made to images of height 1 as sequences."""
    if labels.ndim == 3 and labels.shape[1] == 1 and predictions.shape[:-1] == labels.shape:
        return labels[:, 0], predictions[:, 0]
    return labels, predictions


def _rows(values: NDArray[Any]) -> NDArray[Any]:
    """Return at most 64 strided rows, [rows, ...], with values clipped to 1e100."""
    chosen = strided_rows(len(values), ROWS) if values.ndim else None
    return bounded_array(values if chosen is None else values[chosen])


class _IgnoredLabels:
    """The label that each loss ignores, by its settings or by the labels.

    Labels beyond the outputs that a cross-entropy of torch received are those that it ignores,
    since it refuses others. Of a loss whose function is not known, only -100 is certainly ignored:
    other numbers may be classes, such as -1 and 1.
    """

    def __init__(self) -> None:
        self._set: dict[str, int] = {}
        self._strict: set[str] = set()
        self._found: set[str] = set()

    def on_record(self, info: RunRecord) -> None:
        """Read the settings of the losses."""
        for loss, setup in info.losses.items():
            settings = setup.get("settings", {})
            for name in _SETTINGS:
                if isinstance(settings.get(name), int):
                    self._set[loss] = settings[name]
            kind = "" if setup.get("custom") is True else setup.get("type")
            if info.framework == "torch" and _STRICT & {kind, setup.get("function")}:
                self._strict.add(loss)

    def ignores(self, loss: str) -> bool:
        """Return whether a loss has ignored labels so far."""
        return loss in self._found

    def kept(
        self, loss: str, labels: NDArray[Any], predictions: NDArray[np.float64]
    ) -> NDArray[np.bool_] | None:
        """Return which labels count, once a loss has ignored some.

        Args:
            labels: [rows, ...], any dtype.
            predictions: float64 [rows, ..., classes].

        Returns:
            bool, in the shape of the labels; None if the loss has ignored none, so far, or if the
            labels are no class numbers.
        """
        if labels.dtype.kind not in "iu" or labels.shape != predictions.shape[:-1]:
            return None
        beyond = (labels < 0) | (labels >= predictions.shape[-1])
        ignored = (labels == self._set.get(loss, _USUAL)) | (labels == _USUAL)
        if loss in self._strict and beyond.any():
            ignored = beyond
        if ignored.any():
            self._found.add(loss)
        return ~ignored if loss in self._found else None
