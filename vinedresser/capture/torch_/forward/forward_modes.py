"""Classifying forwards of a torch model as training or evaluation."""

from __future__ import annotations

from typing import Literal

import torch
from torch import nn

from vinedresser.capture.recording.recorder import Recorder
from vinedresser.capture.recording.recording import Recording
from vinedresser.capture.shield import Shield
from vinedresser.capture.torch_.forward.loaded_rows import LoadedRows
from vinedresser.store.step_record import Mode

__all__ = ["ForwardModes", "Running"]

# "open": the model is in eval mode, but an optimizer's step may follow.
Running = Mode | Literal["open"]


class ForwardModes:
    """Classifies the forwards of one model.

    Forwards that precede an optimizer's step are training in any mode: a forward with gradients in
    eval mode is open until such a step, or until a forward that is certainly training. After such a
    step, these forwards are training from the start. A forward in training mode without gradients
    is neither, unless a loss is computed from it without gradients: then it is an evaluation.

    Args:
        shield: guards the look at data loaders.

    Attributes:
        aside: the last forward was in training mode without gradients, outside of a block that
            sets the mode.
        trained_in_eval: the model was in eval mode at its optimizer's last step.
    """

    def __init__(self, model: nn.Module, recorder: Recorder, shield: Shield) -> None:
        self._model = model
        self._recorder = recorder
        self.aside = False
        self.trained_in_eval = False
        # A closure is being evaluated by an optimizer that needs no gradients.
        self._ungraded = False
        # The latest evaluation in training mode.
        self._evaluation: Recording | None = None
        self._rows = LoadedRows(shield, recorder.batch)

    def remove(self) -> None:
        """Remove all hooks."""
        self._rows.end()

    def update_begins(self) -> None:
        """Note that an optimizer is about to update the model."""
        self.trained_in_eval = not self._model.training
        self._ungraded = False
        self._rows.trained()

    def closure_begins(self) -> None:
        """Note the start of the first evaluation of a closure."""
        self._ungraded = not torch.is_grad_enabled()

    def closure_ended(self) -> None:
        """Note its end."""
        self._ungraded = False

    def of_forward(self) -> Running | None:
        """Return the mode of a forward that begins now; None: neither."""
        graded = torch.is_grad_enabled() or self._ungraded
        explicit = self._recorder.explicit_mode
        self.aside = self._model.training and not graded and explicit is None
        if explicit is not None:
            return explicit
        if not self._model.training:
            if not graded:
                self._recorder.evaluates_rows(of_training=self._rows.of_training)
                return "eval"
            return "train" if self.trained_in_eval else "open"
        if graded:
            return "train"
        return "eval" if self._evaluates() else None

    def of_loss(self) -> Running | None:
        """Return the mode of a loss computed now; None: neither."""
        if self._recorder.explicit_mode is not None:
            return self._recorder.explicit_mode
        graded = torch.is_grad_enabled() or self._ungraded
        if not self._model.training:
            if not graded or self._recorder.implicit_evaluation:
                return "eval"
            return "train" if self.trained_in_eval else "open"
        if graded:
            return "train"
        return "eval" if self.aside or self._evaluates() else None

    def beside(self, leader: ForwardModes) -> Mode:
        """Return the mode of a forward if no optimizer updates the model, such as a teacher.

        Args:
            leader: modes of the model whose optimizer ends the steps; a teacher in eval mode is
                part of that model's training.
        """
        explicit = self._recorder.explicit_mode
        if explicit is not None:
            return explicit
        if leader._model.training:
            return "train"
        trains = leader.trained_in_eval and not self._recorder.implicit_evaluation
        return "train" if trains else "eval"

    def evaluates(self, recording: Recording) -> bool:
        """Note an evaluation in training mode; return whether it is new."""
        self.aside = False
        before, self._evaluation = self._evaluation, recording
        return before is not recording

    def _evaluates(self) -> bool:
        """Return whether an evaluation in training mode is open."""
        return self._evaluation is not None and self._recorder.evaluates(self._evaluation)
