"""Warning about steps of optimizers that cannot be seen."""

from __future__ import annotations

from torch import nn
from torch.nn.parameter import is_lazy

from vinedresser.capture.recording.recorder import Recorder
from vinedresser.capture.shield import Shield
from vinedresser.capture.torch_.names import own_class

__all__ = ["UnseenSteps"]

# Number of writes to a parameter that exceeds initialization and loading a checkpoint.
_WRITES = 3


class UnseenSteps:
    """Detects a model that is trained while no optimizer step is seen.

    Torch counts the writes to a tensor, also in compiled code.

    Args:
        model: the user's model.
        recorder: recorder of the session.
        shield: reports the problem.
    """

    def __init__(self, model: nn.Module, recorder: Recorder, shield: Shield) -> None:
        self._model = model
        self._recorder = recorder
        self._shield = shield
        self._before = self._writes()
        self._told = False

    def look(self) -> None:
        """Check the model and report it once; callable from any thread."""
        if self._told or self._recorder.steps or not self._model.training:
            return
        before = self._before
        if any(
            count - before.get(name, count) >= _WRITES for name, count in self._writes().items()
        ):
            self._told = True
            name = own_class(self._model).__name__
            self._shield.report(
                f"the weights of the {name} change, but no optimizer step is seen, so no train "
                "step is captured; steps in a compiled function cannot be seen: call "
                "optimizer.step() outside of it"
            )

    def _writes(self) -> dict[str, int]:
        return {
            name: parameter._version
            for name, parameter in self._model.named_parameters()
            if not is_lazy(parameter) and not parameter.is_inference()
        }
