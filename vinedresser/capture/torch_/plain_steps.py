"""The torch adapter's fast path through plain train steps, and its progress in the others."""

from __future__ import annotations

import weakref
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import nn
from torch.optim import Optimizer

from vinedresser.capture.recording.recorder import Recorder
from vinedresser.capture.recording.recording import PlainStep, Recording
from vinedresser.capture.torch_.asked_gradients import AskedGradients
from vinedresser.capture.torch_.forward.forward_hooks import is_elsewhere
from vinedresser.capture.torch_.forward.forward_modes import ForwardModes
from vinedresser.capture.torch_.forward.sequence import ForwardSequence
from vinedresser.capture.torch_.training_state import TrainingState
from vinedresser.frameworks.torch_.nesting import leaves
from vinedresser.frameworks.torch_.optimizers import has_closure

__all__ = ["PlainSteps", "ProgressOf", "compares_numbers", "sequence_length"]


@dataclass(eq=False)
class _Progress:
    """The progress of a model in a recording.

    Attributes:
        forwards: number of calls; with a closure, since the start of the optimizer's step.
        in_sequence: whether each of them certainly continues the one before.
        undifferentiated: number of them whose inputs have no gradients, as far as looked at.
    """

    forwards: int = 0
    in_sequence: bool = False
    undifferentiated: int = 0
    # Weak, so as not to keep optimizers alive.
    _stepped: list[weakref.ref[Optimizer]] = field(default_factory=list)

    @property
    def first_batch(self) -> bool:
        """Whether tensors of a forward are still captured: only the first one's are."""
        return self.forwards <= 1

    @property
    def first_losses(self) -> bool:
        """Whether a loss computed now is that of the first batch, or of a sequence of forwards."""
        return self.first_batch or self.in_sequence

    @property
    def stepped(self) -> list[Optimizer]:
        """The optimizers that have begun a step."""
        found = (one() for one in self._stepped)
        return [one for one in found if one is not None]

    def begin_forward(self, sequence: ForwardSequence | None, args: Any, kwargs: Any) -> None:
        """Note the start of a forward.

        Args:
            sequence: the latest forward of the model; None if no comparison is due.
        """
        self.forwards += 1
        if sequence is not None:
            given = leaves([args, kwargs])
            self.undifferentiated += not any(one.requires_grad for _, one in given)
        if sequence is None:
            self.in_sequence = False
        elif self.forwards == 1:
            self.in_sequence = sequence.begins()
        else:
            self.in_sequence &= sequence.continues([args, kwargs], self.forwards)

    def begins_step(self, optimizer: Optimizer) -> bool:
        """Note the start of an optimizer's step; return whether it is its first step."""
        if any(one() is optimizer for one in self._stepped):
            return False
        self._stepped.append(weakref.ref(optimizer))
        return True


class ProgressOf:
    """The progress of one model in each open recording and in the plain step."""

    def __init__(self) -> None:
        # The latest plain step with a forward, and its number of forwards.
        self._plain = -1
        self._forwards = 0

    def saw_plain_forward(self, step: int) -> int:
        """Count a forward in a plain step; return the number so far."""
        self._forwards = 1 + self.plain_forwards(step)
        self._plain = step
        return self._forwards

    def plain_forwards(self, step: int) -> int:
        """Return the number of forwards in a train step while it was plain."""
        return self._forwards if step == self._plain else 0

    def __call__(self, recording: Recording) -> _Progress:
        """Return the progress in a recording."""
        found = recording.progress.get(self)
        if found is None:
            trains = recording.mode == "train"
            before = self.plain_forwards(recording.step) if trains else 0
            found = recording.progress[self] = _Progress(before)
        assert isinstance(found, _Progress)
        return found


def sequence_length(recording: Recording) -> int:
    """Return the number of forwards of a model each of which continues the one before, or 1."""
    found = (one for one in recording.progress.values() if isinstance(one, _Progress))
    return max((one.forwards for one in found if one.in_sequence), default=1)


def compares_numbers(recording: Recording) -> bool:
    """Return whether numbers that a loss compares now are certainly no outputs of the model.

    Those of several forwards may be labels of each other, such as those of two views of a row,
    unless these are differentiated by their inputs, as for residuals of differential equations.
    """
    found = (one for one in recording.progress.values() if isinstance(one, _Progress))
    return all(one.undifferentiated <= 1 for one in found)


class PlainSteps:
    """The fast path through a plain step (`PlainStep`).

    Each method returns True if it has handled the event. Otherwise (the model runs in eval mode, a
    loss is not a number, the optimizer has a closure), it does nothing, and the slow path ends the
    plain step.

    Args:
        progress: progress of the model.
        gradients: takes the gradients that queries read.
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
        gradients: AskedGradients,
        beside: Callable[[], bool],
    ) -> None:
        self._model = model
        self._recorder = recorder
        self._modes = modes
        self._progress = progress
        self._running = running
        self._gradients = gradients
        self._beside = beside

    def forward_begins(self) -> bool:
        """Handle the start of a forward."""
        plain = self._now()
        if plain is None or is_elsewhere() or torch._C._get_tracing_state() is not None:
            return False
        if plain.keeps_gradients and not self._gradients.stepped:
            # Those of a loop without an optimizer are captured otherwise.
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

    def update_begins(self, optimizer: Optimizer, args: Any, kwargs: Any) -> bool:
        """Handle the start of an optimizer's step.

        Args:
            args: positional arguments of the step; args[0] is the optimizer.
        """
        plain = self._recorder.plain
        if plain is None or has_closure(args, kwargs) or not self._model.training:
            self._gradients.saw(optimizer)
            return False
        if plain.keeps_gradients and not self._gradients.take(plain, optimizer):
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
