"""How a torch training runs: in which mode, by what scale of its gradients, waiting how long."""

from __future__ import annotations

from torch import nn

from vinedresser.capture.config.capture_config import Due
from vinedresser.capture.recording.recording import Recording
from vinedresser.capture.recording.session import Session
from vinedresser.capture.torch_.copies.torch_copier import TorchCopier
from vinedresser.capture.torch_.forward.backward_end import BackwardEnd
from vinedresser.capture.torch_.names import Names
from vinedresser.capture.torch_.optimizers.scaling import Scaling
from vinedresser.capture.torch_.training_mode import training_share

__all__ = ["TrainingState"]


class TrainingState:
    """Takes ``state/training``, ``state/grad_scale`` and ``state/skipped_steps``.

    For ``timing/wait`` it looks when a backward is over, once steps have several of them.

    Args:
        root: the model as it is called.
        names: of the user's own model inside of it.
        copier: takes numbers.
        session: whose steps are measured.
    """

    def __init__(
        self, root: nn.Module, names: Names, copier: TorchCopier, session: Session
    ) -> None:
        self._root = root
        self._names = names
        self._copier = copier
        self._recorder = session.recorder
        self._scaling = Scaling(root, session.shield)
        # The step before had several batches, so the training waits after a backward too.
        self._accumulates = False
        self._backward = BackwardEnd(session.shield.guard("the end of a backward", self._ended))
        self._training, self._scale, self._skipped = (
            f"state/{names.prefix}{word}" for word in ("training", "grad_scale", "skipped_steps")
        )

    def names(self) -> list[str]:
        """Return the names of what there is to capture in any model."""
        return [self._training, self._scale, self._skipped]

    def begin(self, recording: Recording) -> None:
        """Take in which mode the model is, at the start of the first forward of a recording."""
        due = recording.due
        if recording.mode == "train":
            self.wait_for_backwards(due)
        if not due.reaches("state"):
            return
        if due.ask(self._scale) or due.ask(self._skipped):
            self._scaling.begin()
        if due.ask(self._training):
            share = training_share(module for _, module in self._names.modules())
            if share is not None:
                recording.add_scalar(self._training, share)

    def wait_for_backwards(self, due: Due) -> None:
        """Look when the backwards of a train step are over, where that is of use.

        Args:
            due: what is due in the step.
        """
        if self._accumulates and "timing/wait" in due.times:
            self._look_for_backwards()

    def ended(self, forwards: int) -> None:
        """See a train step end.

        Args:
            forwards: calls of the model in it.
        """
        self._backward.remove()
        self._accumulates = forwards > 1

    def end(self, recording: Recording, forwards: int) -> None:
        """Take what a scaler has to do with a train step that ends.

        Args:
            recording: of the step.
            forwards: calls of the model in it.
        """
        self.ended(forwards)
        figures = self._scaling.figures() if recording.due.reaches("state") else None
        if figures is not None:
            for name, value in zip((self._scale, self._skipped), figures, strict=True):
                if recording.due.ask(name):
                    self._copier.keep_scalar(recording, name, value, 1.0)

    def detach(self) -> None:
        """Leave model and scalers as they were found."""
        self._backward.remove()
        self._scaling.remove()

    def _look_for_backwards(self) -> None:
        # What is compiled must not meet a hook of ours.
        compiled = self._root._compiled_call_impl is not None or hasattr(self._root, "_orig_mod")
        if not compiled:
            self._backward.begin(self._parameters)

    def _parameters(self) -> list[nn.Parameter]:
        return [one.value for one in self._names.parameters()]

    def _ended(self) -> None:
        if self._recorder.timing is not None:
            self._recorder.timing.backward_ended()
