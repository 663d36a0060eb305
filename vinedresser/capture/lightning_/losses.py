"""What the losses of a Lightning module compared."""

from __future__ import annotations

from typing import Any

from vinedresser.capture.recording.recording import Recording
from vinedresser.capture.recording.session import Session
from vinedresser.capture.torch_.adapter import TorchAdapter

__all__ = ["StepLosses"]


class StepLosses:
    """Records the losses that steps return, and what functions inside the steps compared.

    It is the `InputTaker` of the losses that are found at backward passes. Their values in training
    are not recorded, since the steps return them.

    Args:
        session: session of the hook.
        inner: adapter of the model.
    """

    def __init__(self, session: Session, inner: TorchAdapter) -> None:
        self._session = session
        self._inner = inner
        # The losses of functions in the current step of an evaluation, with their arguments.
        self._found: list[tuple[str, Any, tuple[Any, ...]]] = []

    def record_loss(self, name: str, value: Any, arguments: tuple[Any, ...]) -> None:
        """See `LossTaker.record_loss`."""
        if self._session.recorder.explicit_mode == "eval":
            self._found.append((name, value, arguments))

    def inputs_due(self) -> Recording | None:
        """See `InputTaker.inputs_due`."""
        return self._inner.inputs_due()

    def record_inputs(self, recording: Recording, name: str, inputs: tuple[Any, ...]) -> None:
        """See `InputTaker.record_inputs`."""
        self._inner.record_inputs(recording, name, inputs)

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
