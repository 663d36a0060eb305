"""Losses that a script with a hook does not pass to it."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from torch import nn
from torch.amp import GradScaler
from torch.optim import Optimizer

from vinedresser.capture.adapters.adapter import InputTaker
from vinedresser.capture.adapters.training_setup import function_setup
from vinedresser.capture.recording.recording import Recording
from vinedresser.capture.recording.session import Session
from vinedresser.capture.torch_.losses.backward_losses import (
    POLICY_STEPS,
    BackwardLosses,
    LossRecorder,
)
from vinedresser.capture.torch_.setup import SetupNotes
from vinedresser.frameworks.torch_.loop_listener import LoopListener, listen_to_loop
from vinedresser.frameworks.torch_.optimizer_steps import Arguments
from vinedresser.frameworks.torch_.optimizers import updated
from vinedresser.store.records import POLICY_GRADIENT


class UnreportedLosses(LoopListener):
    """Records the losses of a session's models, found at their backward passes.

    The loss is called "loss", or like the model if models with names have optimizers of their own.
    As soon as the script passes a loss to the hook, none is recorded any more; in the first steps
    it is still noted whether a policy gradient is minimized, which the value alone does not tell.
    """

    def __init__(self, session: Session) -> None:
        self._session = session
        self._losses = BackwardLosses(session.shield)
        self._models: list[tuple[weakref.ref[nn.Module], str | None]] = []
        # The name of the loss that an optimizer minimizes; None if it updates no watched model.
        self._minimized: weakref.WeakKeyDictionary[Optimizer, str | None] = (
            weakref.WeakKeyDictionary()
        )
        self._taker: InputTaker | None = None
        self._notes: SetupNotes | None = None
        self._end: Callable[[], None] | None = None
        # Steps of losses that the script passes in which policy gradients are looked for.
        self._steps_left = POLICY_STEPS

    def watch(
        self, model: nn.Module, name: str | None, taker: InputTaker, notes: SetupNotes
    ) -> None:
        """Look for the losses of a model.

        Args:
            model: the object that the training calls.
            name: the name under which it is watched, or None.
            taker: receives the losses; only that of the first model does.
            notes: the observed setup of its training.
        """
        if self._session.losses_reported:
            return
        if self._taker is None:
            self._taker, self._notes = taker, notes
            self._losses.sink = self
            self._end = listen_to_loop(self, self._session.shield.guard)
        self._models.append((weakref.ref(model), name))
        self._minimized.clear()
        self._losses.watch_model(model)

    def close(self) -> None:
        """Look for no more losses."""
        if self._end is not None:
            self._end()
            self._end = None
        self._losses.forget()
        self._models.clear()
        self._minimized.clear()
        self._taker = self._notes = None

    def loss_scaled(self, _: GradScaler) -> None:
        """See `LoopListener.loss_scaled`."""
        self._losses.scaled()

    def backward_begins(self, losses: Sequence[Any]) -> None:
        """See `LoopListener.backward_begins`."""
        reported = self._session.losses_reported
        if reported and not self._steps_left:
            self.close()
        elif reported:
            self._losses.look(losses)
        else:
            self._losses.backward(losses)

    def step_begins(self, optimizer: Optimizer, args: Any, kwargs: Any) -> Arguments | None:
        """See `LoopListener.step_begins`."""
        name = self._minimized_by(optimizer)
        if name is None:
            # For instance the loss of a model that is not watched.
            self._losses.take()
        elif not self._session.losses_reported:
            return self._losses.step_begins(lambda: name, optimizer, args, kwargs)
        elif self._steps_left:
            self._steps_left -= 1
            policy, actions = self._losses.take_agent()
            if policy or actions:
                function = POLICY_GRADIENT if policy else ""
                self.know_loss_function(name, function_setup(function, actions=actions))
        return None

    def step_ended(self, *_: Any) -> None:
        """See `LoopListener.step_ended`."""
        self._losses.step_ended()

    def _minimized_by(self, optimizer: Optimizer) -> str | None:
        """Return the name of the loss that an optimizer minimizes; None if it is not recorded."""
        if optimizer not in self._minimized:
            ids = updated([optimizer])
            models = [(one(), name) for one, name in self._models]
            names = [
                name
                for model, name in models
                if model is not None and not ids.isdisjoint(map(id, model.parameters()))
            ]
            alone = names[0] if len(names) == 1 else None
            self._minimized[optimizer] = (alone or "loss") if names else None
        return self._minimized[optimizer]

    def comparisons_due(self) -> bool:
        """See `LossSink.comparisons_due`."""
        return self._session.recorder.comparisons_due()

    def loss_inputs_due(self, *, several: bool = False) -> Recording | None:
        """See `LossSink.loss_inputs_due`."""
        return None if self._taker is None else self._taker.inputs_due(several=several)

    def loss_recorder(self, name: str) -> LossRecorder:
        """See `LossSink.loss_recorder`."""
        assert self._taker is not None, "set before losses are looked for"
        return partial(self._session.shield.guard("the loss", self._taker.record_loss), name)

    def know_loss_function(self, name: str, setup: dict[str, Any]) -> None:
        """See `LossSink.know_loss_function`."""
        if self._notes is not None and self._notes.saw_loss_function(name, setup):
            self._session.newly_set_up = True

    def record_loss_inputs(
        self, recording: Recording, name: str, inputs: tuple[Any, ...], *, paired: bool
    ) -> None:
        """See `LossSink.record_loss_inputs`."""
        assert self._taker is not None, "set before losses are looked for"
        self._taker.record_inputs(recording, name, inputs, paired=paired)
