"""Capture from custom training loops that run eagerly."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, Literal

import keras
import numpy as np

from vinedresser.capture.keras_.backends.backend import first_length
from vinedresser.capture.keras_.observation.comparisons import (
    Comparison,
    LossFunction,
    is_same_loss,
)
from vinedresser.capture.keras_.observation.due_filter import DueFilter, Emit
from vinedresser.capture.keras_.observation.interception import observing
from vinedresser.capture.keras_.observation.loop_losses import Differentiation, LoopUpdate
from vinedresser.capture.keras_.observation.observers import Original
from vinedresser.capture.keras_.observation.optimizer_update import OptimizerUpdate, updates_made
from vinedresser.capture.keras_.observation.watched_model import WatchedModel
from vinedresser.capture.recording.recording import Recording
from vinedresser.frameworks.keras_.layers import differs_in_training
from vinedresser.frameworks.nesting import leaves
from vinedresser.store.collections.collection import FIRST_LABEL
from vinedresser.store.step_record import Mode


class CustomLoop:
    """Captures from calls of the model and of its optimizers outside of Keras's own loops."""

    def __init__(self, watched: WatchedModel) -> None:
        self._session = watched.session
        self._recorder = watched.session.recorder
        self._names = watched.names
        self._backend = watched.backend
        self._writer = watched.writer
        self._counter = watched.counter
        self._collector = watched.collector
        self._leads = watched.leads
        self._is_updated_by = watched.is_updated_by
        self._watched = watched
        self._losses = watched.loop_losses()
        # Steps made by the leading optimizer before the call, if the call may make none.
        self._made: int | None = None
        # Whether the latest call of the model had ``training=False`` while gradients were taken,
        # and whether an update has followed such a call.
        self._idle = self._trained_idle = False
        # Emits the weight changes of the update in progress.
        self._emit_changes: Callable[[], object] | None = None
        self._mode_now: Mode | Literal["open"] | None = None
        guard = watched.session.shield.guard
        self._begin = guard("the start of a forward", self._begin_forward)
        self._end = guard("the end of a forward", self._end_forward)

    def call(self, original: Original, args: Any, kwargs: Any) -> Any:
        """Call the model and return its output."""
        recording = self._begin(args, kwargs)
        output = self._observed(recording, original, args, kwargs)
        self._end(output, recording)
        return output

    def _observed(
        self, recording: Recording | None, original: Original, args: Any, kwargs: Any
    ) -> Any:
        if recording is None or not recording.first_batch:
            return original(self._names.model, *args, **kwargs)

        is_due, emit = self._filter_and_writer(recording)
        collector = self._collector(is_due, emit)
        with observing(collector):
            return collector.call_layer(original, self._names.model, args, kwargs)

    def before_update(self, optimizer: Any, gradients: Any, variables: Any) -> None:
        """Record the update that an optimizer is about to apply."""
        if not self._is_updated_by(optimizer, variables):
            return
        loop_update = self._losses.updated()
        if self._counter.register(optimizer) and _irregular(optimizer):
            self._made = updates_made(optimizer)
        if self._recorder.quiet:
            return
        self._trained_idle = self._idle
        if self._idle:
            self._recorder.claim()
        self._recorder.resume_training()
        recording = self._recorder.recording(self._recorder.explicit_mode or "train")
        if recording is None:
            return

        is_due, emit = self._filter_and_writer(recording)
        self._write_losses(recording, loop_update, optimizer, variables)
        update = OptimizerUpdate(self._names, self._backend, optimizer, gradients, variables)
        update.emit_before(is_due, emit)
        emit_changes = self._session.shield.guard("the change by an optimizer", update.emit_changes)
        self._emit_changes = partial(emit_changes, emit)

    def after_update(self, optimizer: Any) -> None:
        """Record the weight changes and end the step.

        Raises:
            TrainingStopped: The training was requested to stop.
        """
        emit_changes, self._emit_changes = self._emit_changes, None
        if emit_changes is not None:
            emit_changes()
        if optimizer is not self._counter.optimizer:
            return
        made, self._made = self._made, None
        if (made is None or updates_made(optimizer) > made) and self._leads():
            self._session.step_ended()

    def loss(self, name: str, value: Any, arguments: tuple[Any, ...]) -> None:
        """Record the value of a loss function.

        Args:
            value: its value; a tensor of any shape, or a nesting of tensors.
            arguments: positional arguments of the call.
        """
        recording = self._recorder.current()
        if recording is None:
            return
        is_tensor = self._backend.is_tensor
        weight = recording.weight(first_length(one for _, one in leaves(arguments, "", is_tensor)))
        for full, tensor in leaves(value, f"losses/{self._names.prefix}{name}", is_tensor):
            self._writer.write(recording, full, tensor, weight)

    def compared(self, comparison: Comparison) -> None:
        """Note a call of a loss object; record it if it is the training's in an evaluation."""
        if self._recorder.quiet or not self._losses.compared(comparison):
            return
        if not is_same_loss(comparison.loss, self._watched.comparing):
            return
        labels, predictions = comparison.labels, comparison.predictions
        source = self._watched.source
        value = None if source is None else source.applied(comparison.value)
        if value is not None:
            self.loss("loss", value, (labels, predictions))
        elif source is None and isinstance(comparison.loss, LossFunction):
            return
        recording = self._recorder.current()
        if recording is not None and recording.first_batch:
            prefix = self._names.prefix
            self._write_leaves(recording, f"labels/{prefix}batch", labels)
            self._write_leaves(recording, f"predictions/{prefix}batch", predictions)
        if recording is not None and recording.mode == "eval":
            self._write_first_label(recording, labels)

    def _write_first_label(self, recording: Recording, labels: Any) -> None:
        """Write the share of an evaluation's labels that equal its first one, if they are known."""
        name = f"{FIRST_LABEL}{self._names.prefix}loss"
        # Those of a function that is being compiled have no values.
        known = isinstance(labels, np.ndarray) or (
            keras.ops.is_tensor(labels) and hasattr(labels, "numpy")
        )
        if known and recording.due.ask(name) and 0 < len(labels.shape) <= 2 and labels.shape[0]:
            recording.add_first_label(name, keras.ops.convert_to_numpy(labels))

    def differentiated(self, differentiation: Differentiation) -> None:
        """Note a call of ``GradientTape.gradient``."""
        if not (self._recorder.quiet or self._session.losses_reported):
            self._losses.differentiated(differentiation)

    def forget(self) -> None:
        """Release the training."""
        self._losses.updated()

    def _write_losses(
        self, recording: Recording, update: LoopUpdate, optimizer: Any, variables: Any
    ) -> None:
        """Record the loss, the labels and the predictions of an update, as far as certain."""
        for name, value in self._watched.losses_of(update, optimizer, variables).items():
            self._write_leaves(recording, name, value)

    def _write_leaves(self, recording: Recording, name: str, value: Any) -> None:
        for full, tensor in leaves(value, name, self._backend.is_tensor):
            self._writer.write(recording, full, tensor)

    def _end_forward(self, output: Any, recording: Recording | None) -> None:
        if self._mode_now is None or self._recorder.quiet:
            return
        looks = recording is not None and recording.first_batch and self._compares(recording)
        self._losses.called(output, trained=self._mode_now in ("train", "open"), looks=looks)

    def _compares(self, recording: Recording) -> bool:
        """Return whether labels or predictions are due in a recording, and found by the loss."""
        due = recording.due
        found = not self._session.losses_reported
        return found and (due.reaches("labels") or due.reaches("predictions"))

    def _begin_forward(self, args: Any, kwargs: Any) -> Recording | None:
        """Return the recording of a forward pass; None if nothing is due."""
        self._recorder.batch.forward_begins()
        mode = self._mode_now = self._mode(kwargs)
        if mode == "train":
            self._recorder.forward_begins()
        if mode is None:
            self._note_act()
        if mode is None or (mode == "train" and self._recorder.quiet):
            return None
        if mode in ("eval", "predict"):
            self._session.stop_if_asked()
        recorder = self._recorder
        recording = recorder.undecided() if mode == "open" else recorder.recording(mode)
        if recording is None:
            return None
        recording.forwards += 1
        recording.note_batch(self._recorder.batch.origins)
        if recording.first_batch:
            self._record_training_flag(recording, kwargs)
        if mode != "train":
            inputs = leaves([args, kwargs], "", self._backend.is_tensor)
            recording.batch = first_length(one for _, one in inputs) or 1
            if recording.first_batch:
                self._writer.write_variables(recording)
        return recording

    def _note_act(self) -> None:
        """Record that the model is called between its updates, as by agents."""
        recorder = self._recorder
        trained = self._counter.optimizer is not None
        if not trained or recorder.quiet or recorder.explicit_mode is not None:
            return
        name = f"state/{self._names.prefix}acts"
        due = recorder.current_due()
        if due is not None and due.ask(name) and (recording := recorder.current()) is not None:
            recording.add_scalar(name, 1.0)

    def _filter_and_writer(self, recording: Recording) -> tuple[DueFilter, Emit]:
        def emit(name: str, value: Any) -> None:
            self._writer.write(recording, name, value)

        return lambda name: bool(recording.due.ask(name)), emit

    def _record_training_flag(self, recording: Recording, kwargs: Any) -> None:
        """Record whether the model is called with ``training=True``, if that makes a difference.

        A model with a flag of its own, such as ``is_training``, passes it on to its layers unseen.
        """
        name = f"state/{self._names.prefix}training"
        flag = kwargs.get("training")
        unseen = flag is None and "training" not in self._names.model.call_signature_parameters
        if unseen or not recording.due.ask(name):
            return
        if differs_in_training(self._names.layers()):
            recording.add_scalar(name, 1.0 if flag else 0.0)

    def _mode(self, kwargs: Any) -> Mode | Literal["open"] | None:
        """Return the mode of a forward pass; None if it is neither training nor evaluation.

        Without ``training=…`` and outside of a gradient tape, the call may only build the model.
        With ``training=False`` while gradients are taken, the mode is open: an update may follow.
        """
        explicit = self._recorder.explicit_mode
        if explicit is not None:
            return explicit
        training = kwargs.get("training")
        differentiating = self._backend.differentiating()
        self._idle = training is not None and not training and differentiating
        if self._idle:
            return "train" if self._trained_idle else "open"
        if training is None:
            return "train" if differentiating else None
        return "train" if training else "eval"


def _irregular(optimizer: Any) -> bool:
    """Return whether a call of an optimizer may update nothing."""
    return bool(optimizer.gradient_accumulation_steps or hasattr(optimizer, "inner_optimizer"))
