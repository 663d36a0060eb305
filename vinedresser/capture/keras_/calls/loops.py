"""Loops of the user's own: forwards, gradient tapes and updates that run line by line."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, Literal

from vinedresser.capture.keras_.backends.backend import first_length
from vinedresser.capture.keras_.calls.interception import Original, collecting
from vinedresser.capture.keras_.nesting import leaves
from vinedresser.capture.keras_.steps.updates import Update, updates_made
from vinedresser.capture.keras_.training_mode import differs_in_training
from vinedresser.capture.keras_.watched import Watched
from vinedresser.capture.recording.recording import Recording
from vinedresser.store.step_record import Mode

__all__ = ["Loop"]


class Loop:
    """Captures from calls of the model and of an optimizer, wherever they come from.

    Args:
        watched: the model.
    """

    def __init__(self, watched: Watched) -> None:
        self._session = watched.session
        self._recorder = watched.session.recorder
        self._names = watched.names
        self._backend = watched.backend
        self._keeping = watched.keeping
        self._count = watched.count
        self._collector = watched.collector
        self._leads = watched.leads
        self._updated_by = watched.updated_by
        # Updates that the optimizer had made, where a call of it need not make one.
        self._made: int | None = None
        # Whether the model was last called with ``training=False`` while gradients were taken, and
        # whether an update has followed on that.
        self._idle = self._trained_idle = False
        # Takes by how much the update that is being applied changes the weights.
        self._change: Callable[[], object] | None = None
        self._begin = watched.session.shield.guard("the start of a forward", self._begun)

    def call(self, original: Original, args: Any, kwargs: Any) -> Any:
        """Call the model."""
        recording = self._begin(args, kwargs)
        if recording is None or not recording.first_batch:
            return original(self._names.model, *args, **kwargs)

        def take(name: str, value: Any) -> None:
            self._keeping.keep(recording, name, value)

        collector = self._collector(lambda name: bool(recording.due.ask(name)), take)
        with collecting(collector):
            return collector.layer_called(original, self._names.model, args, kwargs)

    def before_update(self, optimizer: Any, gradients: Any, variables: Any) -> None:
        """See what an optimizer is about to apply."""
        if not self._updated_by(optimizer, variables):
            return
        if self._count.saw(optimizer) and _irregular(optimizer):
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

        def take(name: str, value: Any) -> None:
            self._keeping.keep(recording, name, value)

        update = Update(self._names, self._backend, optimizer, gradients, variables)
        update.hand_over(lambda name: bool(recording.due.ask(name)), take)
        changed = self._session.shield.guard("the change by an optimizer", update.hand_over_change)
        self._change = partial(changed, take)

    def after_update(self, optimizer: Any) -> None:
        """See that it was applied.

        Raises:
            TrainingStopped: the training was asked to end.
        """
        change, self._change = self._change, None
        if change is not None:
            change()
        if optimizer is not self._count.optimizer:
            return
        made, self._made = self._made, None
        if (made is None or updates_made(optimizer) > made) and self._leads():
            self._session.step_ended()

    def loss(self, name: str, value: Any, arguments: tuple[Any, ...]) -> None:
        """See what a loss function returned.

        Args:
            name: of the loss.
            value: what it returned.
            arguments: what it was called with.
        """
        recording = self._recorder.current()
        if recording is None:
            return
        is_tensor = self._backend.is_tensor
        weight = recording.weight(first_length(one for _, one in leaves(arguments, "", is_tensor)))
        for full, tensor in leaves(value, f"losses/{self._names.prefix}{name}", is_tensor):
            self._keeping.keep(recording, full, tensor, weight)

    def _begun(self, args: Any, kwargs: Any) -> Recording | None:
        """Begin a forward; return the recording that it belongs to, None where nothing is due."""
        mode = self._mode(kwargs)
        if mode == "train":
            self._recorder.forward_begins()
        if mode is None or (mode == "train" and self._recorder.quiet):
            return None
        if mode in ("eval", "predict"):
            self._session.stop_if_asked()
        recorder = self._recorder
        recording = recorder.undecided() if mode == "open" else recorder.recording(mode)
        if recording is None:
            return None
        recording.forwards += 1
        if recording.first_batch:
            self._take_state(recording, kwargs)
        if mode != "train":
            inputs = leaves([args, kwargs], "", self._backend.is_tensor)
            recording.batch = first_length(one for _, one in inputs) or 1
            if recording.first_batch:
                self._keeping.variables(recording)
        return recording

    def _take_state(self, recording: Recording, kwargs: Any) -> None:
        """Take whether the model is called as in training, where that makes a difference."""
        name = f"state/{self._names.prefix}training"
        if recording.due.ask(name) and differs_in_training(self._names.layers()):
            recording.add_scalar(name, 1.0 if kwargs.get("training") else 0.0)

    def _mode(self, kwargs: Any) -> Mode | Literal["open"] | None:
        """Return the mode of a forward; None where it is neither training nor evaluation.

        Without ``training=…`` and outside of a tape it may be a look at the model's shapes. With
        ``training=False`` while gradients are taken it is open: an update may follow.
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
    """Say whether a call of an optimizer may update nothing."""
    return bool(optimizer.gradient_accumulation_steps or hasattr(optimizer, "inner_optimizer"))
