"""What the losses of a Lightning module compared."""

from __future__ import annotations

from typing import Any

from vinedresser.capture.recording.recording import Recording
from vinedresser.capture.recording.session import Session
from vinedresser.capture.torch_.adapter import TorchAdapter

__all__ = ["StepLosses"]


class StepLosses:
    """Records the losses of a module's steps, and what functions inside the steps compared.

    It is the `InputTaker` of the losses that are found at backward passes. With automatic
    optimization, their values in training are those that the steps return.

    Args:
        inner: adapter of the model.
        manual: the module calls the optimizers itself.
        adversaries: several optimizers minimize losses of their own. What functions compared is
            then not recorded, since it may belong to any of them.
    """

    def __init__(
        self, session: Session, inner: TorchAdapter, *, manual: bool, adversaries: bool
    ) -> None:
        self._session = session
        self._inner = inner
        self._manual = manual
        self._adversaries = adversaries
        # The losses of functions in the current step of an evaluation, with their arguments.
        self._found: list[tuple[str, Any, tuple[Any, ...]]] = []
        # With manual optimization: the number of losses of the batch; the name of the first one
        # since the latest step of an optimizer; and the name of the one that it minimized.
        self._count = 0
        self._first = ""
        self._minimized = "loss"

    def batch_begins(self) -> None:
        """Count the losses of a manual optimization from 0."""
        self._count = 0
        self._first = ""

    def backward(self, loss: Any) -> None:
        """Record a loss [] of a manual optimization before its backward pass."""
        name = f"loss#{self._count}" if self._count else "loss"
        self._count += 1
        self._first = self._first or name
        self._record(name, loss)

    def record_loss(self, name: str, value: Any, arguments: tuple[Any, ...]) -> None:
        """See `LossTaker.record_loss`."""
        if self._session.recorder.explicit_mode == "eval":
            if not self._adversaries:
                self._found.append((name, value, arguments))
        elif self._manual:
            if not self._first:
                # The step calls `loss.backward()` instead of `manual_backward`.
                self.backward(value)
            self._minimized, self._first = self._first, ""

    def inputs_due(self, *, several: bool = False) -> Recording | None:
        """See `InputTaker.inputs_due`."""
        return None if self._adversaries else self._inner.inputs_due(several=several)

    def record_inputs(
        self, recording: Recording, name: str, inputs: tuple[Any, ...], *, paired: bool = True
    ) -> None:
        """See `InputTaker.record_inputs`."""
        name = self._minimized if self._manual else name
        self._inner.record_inputs(recording, name, inputs, paired=paired)

    def step_begins(self) -> None:
        """Forget the losses of a step that raised an error."""
        self._found.clear()

    def step_ended(self, result: Any, arguments: tuple[Any, ...]) -> None:
        """Record the loss that a step returns, directly or as the mapping's "loss".

        A step of an evaluation that returns none has the loss that a function computed in it.

        Args:
            result: what the step returns.
            arguments: arguments of the step, a nesting of tensors [batch, ...].
        """
        found = self._found[:]
        self._found.clear()
        loss = result.get("loss") if isinstance(result, dict) else result
        if self._session.recorder.explicit_mode in (None, "train"):
            if loss is not None and not self._manual:
                self._record("loss", loss)
            return
        if self._session.recorder.quiet:
            return
        if loss is not None:
            self._inner.record_value("loss", loss, arguments)
        else:
            for name, value, compared in found:
                self._inner.record_value(name, value, compared)
        if len(found) == 1 and (recording := self._inner.inputs_due()) is not None:
            name, _, compared = found[0]
            self._inner.record_inputs(recording, name, compared)

    def _record(self, name: str, loss: Any) -> None:
        """Record a loss [] of a train step; the guard keeps it, too."""
        if self._inner.guard is not None:
            self._inner.guard.took_loss(name, loss, ())
        if not self._session.recorder.quiet:
            self._inner.record_value(name, loss, ())
