"""Telling the user of steps that nobody sees."""

from __future__ import annotations

from torch import nn
from torch.nn.parameter import is_lazy

from vinedresser.capture.recording.recorder import Recorder
from vinedresser.capture.shield import Shield
from vinedresser.capture.torch_.names import own_class

__all__ = ["UnseenSteps"]

# Writes to a parameter that are more than its initialisation and a loaded checkpoint.
_WRITES = 3


class UnseenSteps:
    """Notices that a model is trained while no step of an optimizer is seen.

    Torch counts how often a tensor was written to, also by compiled code.

    Args:
        model: the user's own.
        recorder: knows of steps.
        shield: reports.
    """

    def __init__(self, model: nn.Module, recorder: Recorder, shield: Shield) -> None:
        self._model = model
        self._recorder = recorder
        self._shield = shield
        self._before = self._writes()
        self._told = False

    def look(self) -> None:
        """Look, on any thread, and tell it once."""
        if self._told or self._recorder.steps or not self._model.training:
            return
        before = self._before
        if any(
            count - before.get(name, count) >= _WRITES for name, count in self._writes().items()
        ):
            self._told = True
            name = own_class(self._model).__name__
            self._shield.report(
                f"the weights of the {name} change, but no optimizer's step is seen, so no train "
                "step is captured; one inside of a compiled function is not to be seen: call "
                "optimizer.step() outside of it"
            )

    def _writes(self) -> dict[str, int]:
        return {
            name: parameter._version
            for name, parameter in self._model.named_parameters()
            if not is_lazy(parameter) and not parameter.is_inference()
        }
