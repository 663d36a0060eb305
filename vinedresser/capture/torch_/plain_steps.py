"""The torch adapter's fast path through plain train steps."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import nn

from vinedresser.capture.recording.plain_step import PlainStep
from vinedresser.capture.recording.recorder import Recorder
from vinedresser.capture.torch_.forward.forward_hooks import is_elsewhere
from vinedresser.capture.torch_.forward.forward_modes import ForwardModes
from vinedresser.capture.torch_.progress import ProgressOf
from vinedresser.capture.torch_.training_state import TrainingState

__all__ = ["PlainSteps"]


class PlainSteps:
    """The fast path through a plain step (`PlainStep`).

    Each method returns True if it has handled the event. Otherwise (the model runs in eval mode, a
    loss is not a number, the optimizer has a closure), it does nothing, and the slow path ends the
    plain step.

    Args:
        model: the user's model.
        recorder: recorder of the session.
        modes: modes of the model's forwards.
        progress: progress of the model.
        running: state of the training.
        beside: return whether another model is trained, and this one only called.
    """

    def __init__(
        self,
        model: nn.Module,
        recorder: Recorder,
        modes: ForwardModes,
        *,
        progress: ProgressOf,
        running: TrainingState,
        beside: Callable[[], bool],
    ) -> None:
        self._model = model
        self._recorder = recorder
        self._modes = modes
        self._progress = progress
        self._running = running
        self._beside = beside

    def forward_begins(self) -> bool:
        """Handle the start of a forward."""
        plain = self._now()
        if plain is None or is_elsewhere() or torch._C._get_tracing_state() is not None:
            return False
        recorder = self._recorder
        self._modes.aside = False
        recorder.forward_begins()
        plain.begun = True
        if self._progress.saw_plain_forward(recorder.steps) == 1:
            self._running.wait_for_backwards(plain.due)
        else:
            plain.several = True
        return True

    def take_loss(self, name: str, value: Any) -> bool:
        """Handle the value of a loss.

        Args:
            name: name of the loss.
            value: returned value, a number if it is a tensor of one element.
        """
        plain = self._now()
        if plain is None or not isinstance(value, torch.Tensor):
            return False
        if value.numel() != 1 or value.is_cuda or value.is_complex():
            return False
        plain.begun = True
        full = f"losses/{name}"
        if plain.due.ask(full):
            plain.add(full, float(value.item()))
        return True

    def update_begins(self, *, closure: bool) -> bool:
        """Handle the start of an optimizer's step.

        Args:
            closure: whether the step has a closure that computes the loss.
        """
        plain = self._recorder.plain
        if plain is None or closure or not self._model.training:
            return False
        if self._recorder.timing is not None:
            self._recorder.timing.update_begins()
        plain.begun = True
        return True

    def _now(self) -> PlainStep | None:
        """Return the current plain step if the model is training in it."""
        plain = self._recorder.plain
        if plain is None or not self._model.training or not torch.is_grad_enabled():
            return None
        return None if self._beside() else plain
