"""Selection of the execution for the Keras backend in use."""

from __future__ import annotations

from typing import Any, Protocol

import keras

from vinedresser.capture.keras_.observation.observers import PatchPoint
from vinedresser.capture.keras_.observation.watched_model import WatchedModel
from vinedresser.capture.keras_.steps.step_runner import StepRunner

__all__ = ["Execution", "execution_of"]


class Execution(Protocol):
    """Execution of a watched model's steps on one backend of Keras.

    Attributes:
        patch_points: backend methods to intercept in addition to those of Keras.
        runner: runs the steps of which tensors are captured.
    """

    patch_points: tuple[PatchPoint, ...]
    runner: StepRunner

    def watch(self) -> None:
        """Start looking for compiled functions of the user that train the model."""

    def unwatch(self) -> None:
        """Stop looking for them."""

    def on_traced_call(self) -> None:
        """Handle a call of the model in a function that is being traced."""

    def on_traced_update(self, optimizer: Any) -> None:
        """Handle an update of the model in a function that is being traced."""


def execution_of(watched: WatchedModel) -> Execution:
    """Return the execution of a model on the backend in use."""
    if keras.backend.backend() == "tensorflow":
        from vinedresser.capture.keras_.graphs.tensorflow_execution import TensorFlowExecution

        return TensorFlowExecution(watched)
    from vinedresser.capture.keras_.steps.torch_execution import TorchExecution

    return TorchExecution(watched)
