"""Whether a forward of a torch model is part of a train step or of an evaluation."""

from __future__ import annotations

from typing import Literal

import torch
from torch import nn

from vinedresser.capture.recording.recorder import Recorder
from vinedresser.capture.recording.recording import Recording
from vinedresser.store.step_record import Mode

__all__ = ["ForwardModes", "Running"]

# "open": the model is in eval mode, and an optimizer's step may follow all the same.
Running = Mode | Literal["open"]


class ForwardModes:
    """Tells what the forwards of one model belong to.

    What an optimizer's step ends is training, in whatever mode the model is: a forward with
    gradients in eval mode is open until that step comes, or a forward that is training beyond
    doubt. Once it has come, such forwards are training from the start. A forward in training mode
    without gradients is neither; it turns out to be an evaluation when a loss is made of it, also
    without gradients.

    Args:
        model: the user's own.
        recorder: knows what is going on.

    Attributes:
        aside: the last forward was in training mode, without gradients.
        trained_in_eval: the model was in eval mode when its optimizer last took a step.
    """

    def __init__(self, model: nn.Module, recorder: Recorder) -> None:
        self._model = model
        self._recorder = recorder
        self.aside = False
        self.trained_in_eval = False
        # The evaluation that was seen to be one in training mode.
        self._evaluation: Recording | None = None

    def of_forward(self) -> Running | None:
        """Return what a forward that begins now belongs to; None: to neither."""
        graded = torch.is_grad_enabled()
        self.aside = self._model.training and not graded
        if self._recorder.explicit_mode is not None:
            return self._recorder.explicit_mode
        if not self._model.training:
            if not graded:
                return "eval"
            return "train" if self.trained_in_eval else "open"
        if graded:
            return "train"
        return "eval" if self._evaluates() else None

    def of_loss(self) -> Running | None:
        """Return what a loss that is computed now belongs to; None: to neither."""
        if self._recorder.explicit_mode is not None:
            return self._recorder.explicit_mode
        graded = torch.is_grad_enabled()
        if not self._model.training:
            if not graded or self._recorder.implicit_evaluation:
                return "eval"
            return "train" if self.trained_in_eval else "open"
        if graded:
            return "train"
        return "eval" if self.aside or self._evaluates() else None

    def beside(self, leader: ForwardModes) -> Mode:
        """Return what a forward belongs to of a model that no optimizer updates, such as a teacher.

        Args:
            leader: of the model whose optimizer ends the steps. A teacher is in eval mode, and part
                of the training of that model all the same.
        """
        explicit = self._recorder.explicit_mode
        if explicit is not None:
            return explicit
        if leader._model.training:
            return "train"
        trains = leader.trained_in_eval and not self._recorder.implicit_evaluation
        return "train" if trains else "eval"

    def evaluates(self, recording: Recording) -> bool:
        """Take note of an evaluation in training mode; return whether it was not known as one."""
        self.aside = False
        before, self._evaluation = self._evaluation, recording
        return before is not recording

    def _evaluates(self) -> bool:
        """Return whether an evaluation in training mode is going on."""
        return self._evaluation is not None and self._recorder.evaluates(self._evaluation)
