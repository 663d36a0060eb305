"""The state of a torch training: module modes, gradient scale, kept gradients, waiting times."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial
from typing import Any

from torch import Tensor, nn

from vinedresser.capture.config.capture_config import Due
from vinedresser.capture.recording.recording import Recording
from vinedresser.capture.recording.session import Session
from vinedresser.capture.torch_.backward_end import BackwardEnd
from vinedresser.capture.torch_.copies.torch_copier import TorchCopier
from vinedresser.capture.torch_.forward.acting import Acting
from vinedresser.capture.torch_.modules import training_share
from vinedresser.capture.torch_.optimizers.clearing import GradientClearing
from vinedresser.capture.torch_.optimizers.scaling import Scaling
from vinedresser.capture.torch_.optimizers.unapplied_gradients import UnappliedGradients
from vinedresser.frameworks.torch_.names import Names


class TrainingState:
    """Captures ``state/training``, ``state/acts``, ``state/uncleared`` and the state of a scaler.

    ``state/acts`` is 1 if the model acted before its update (`acting`). ``state/uncleared`` is 1 if
    the gradients of a step were added to those of the step before.
    ``state/unapplied`` is captured at the end of a training without a step, see
    `UnappliedGradients`.

    For ``timing/wait``, it also notes the end of backwards if steps have several of them.

    Args:
        root: the model as it is called.
        names: names of the user's model inside it.
        copier: copies single numbers.
        optimized: returns the parameters that the optimizer updates whose steps end the train
            steps. If there have been train steps without any optimizer, all are updated.
    """

    def __init__(
        self,
        root: nn.Module,
        names: Names,
        copier: TorchCopier,
        session: Session,
        optimized: Callable[[], Iterable[Tensor]],
    ) -> None:
        self._root = root
        self._names = names
        self._copier = copier
        self._session, self._recorder = session, session.recorder
        self._acting, self._acted = Acting(), False
        self._scaling = Scaling(root, session.shield)
        # The previous step had several batches: the training also waits after a backward.
        self._accumulates = False
        self._backward = BackwardEnd(session.shield.guard("the end of a backward", self._ended))
        self._optimized = optimized
        self._clearing = GradientClearing(partial(session.shield.guard, "looking at gradients"))
        self._unapplied = UnappliedGradients()
        self._conclude = session.shield.guard("looking for missing steps", self._look_for_steps)
        (
            self._training,
            self._scale,
            self._skipped,
            self._uncleared,
            self._passes,
            self._acts,
        ) = self._names_of_state = [
            f"state/{names.prefix}{word}"
            for word in (
                "training",
                "grad_scale",
                "skipped_steps",
                "uncleared",
                "unapplied",
                "acts",
            )
        ]

    def names(self) -> list[str]:
        """Return the full names of the captured scalars."""
        return list(self._names_of_state)

    def called(self, mode: str | None, args: Any, kwargs: Any) -> None:
        """Note a call of the model.

        Args:
            mode: the mode of the call; None: neither training nor an evaluation.
        """
        if mode in ("train", None):
            self._acting.called(args, kwargs)

    def begin(self, recording: Recording, *, stepped: bool = False) -> None:
        """Capture the modules' modes at the start of a recording's first forward.

        Args:
            stepped: whether the optimizer whose steps end the train steps has already taken one in
                it, after a forward that was not seen. The gradients are then those of this step,
                and the next ones may be of another loss.
        """
        due = recording.due
        if recording.mode == "train":
            self.wait_for_backwards(due)
        if not due.reaches("state"):
            return
        if due.ask(self._scale) or due.ask(self._skipped):
            self._scaling.begin()
        # A closure runs forward and backward within the step of its optimizer.
        whole = recording.closure or not stepped
        looks = recording.mode == "train" and whole and not self._compiled()
        # The closure may compute the last of several batches only, as that of Lightning does; the
        # gradients were cleared before the first one.
        begun = recording.closure and self._clearing.watches
        if looks and not begun and due.ask(self._uncleared):
            self._clearing.begin(self._updated)
            # An attack or an explanation takes gradients in evaluation mode.
            first = not self._recorder.steps and self._root.training
            if first and due.ask(self._passes):
                self._unapplied.begin(self._optimized())
        if due.ask(self._training):
            share = training_share(module for _, module in self._names.modules())
            if share is not None:
                recording.add_scalar(self._training, share)

    def wait_for_backwards(self, due: Due) -> None:
        """Note the end of backwards in a train step if needed."""
        if self._accumulates and "timing/wait" in due.times:
            self._look_for_backwards()

    def ended(self, forwards: int) -> None:
        """Note the end of a train step.

        Args:
            forwards: number of calls of the model in it.
        """
        self._backward.remove()
        self._accumulates = forwards > 1
        self._acted = self._acting.end()

    def end(self, recording: Recording, forwards: int, *, stepped: bool) -> None:
        """Capture a scaler's state, and whether gradients were kept, at the end of a train step.

        Args:
            forwards: number of calls of the model in it.
            stepped: whether the weights were updated in it, by the optimizer whose steps end the
                train steps or without any. If not, as those of a model that is trained every fifth
                step, gradients that other losses add to are not used.
        """
        self.ended(forwards)
        self._unapplied.forget()
        if self._acted and recording.due.reaches("state") and recording.due.ask(self._acts):
            recording.add_scalar(self._acts, 1.0)
        uncleared = self._clearing.end()
        if uncleared is not None and stepped:
            self._copier.keep_scalar(recording, self._uncleared, uncleared, 1.0)
        found = self._scaling.state() if recording.due.reaches("state") else None
        if found is not None:
            for name, value in zip((self._scale, self._skipped), found, strict=True):
                if recording.due.ask(name):
                    self._copier.keep_scalar(recording, name, value, 1.0)

    def detach(self, *, stepped: bool) -> None:
        """Remove all hooks from model and scalers.

        Args:
            stepped: whether any optimizer is known to have taken a step.
        """
        if not (stepped or self._recorder.steps):
            self._conclude()
        self._backward.remove()
        self._clearing.end()
        self._scaling.remove()

    def _look_for_steps(self) -> None:
        """Record the number of backward passes whose gradients no step has applied."""
        # A scaler may skip all steps.
        if not self._scaling.used and self._unapplied.found(self._clearing.fresh):
            recording = self._recorder.recording("train")
            if recording is not None:
                recording.add_scalar(self._passes, float(self._clearing.fresh))
                # The step does not end, but is stored.
                recording.explicit = True

    def _look_for_backwards(self) -> None:
        if not self._compiled():
            self._backward.begin(self._parameters)

    def _compiled(self) -> bool:
        """Return whether the model is compiled: compiled code must not trace a hook."""
        return self._root._compiled_call_impl is not None or hasattr(self._root, "_orig_mod")

    def _updated(self) -> Iterable[Tensor]:
        by_hand = self._session.leader is None and bool(self._recorder.steps)
        return self._parameters() if by_hand else self._optimized()

    def _parameters(self) -> list[nn.Parameter]:
        return [parameter.value for parameter in self._names.parameters()]

    def _ended(self) -> None:
        if self._recorder.timing is not None:
            self._recorder.timing.resumes()
