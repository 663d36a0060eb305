"""The PyTorch backend, and the copying of its tensors into recordings."""

from __future__ import annotations

from typing import Any

import keras
import numpy as np
import torch

from vinedresser.capture.config.capture_config import Ask
from vinedresser.capture.recording.recording import Recording
from vinedresser.capture.recording.session import Session
from vinedresser.capture.shield import Shield
from vinedresser.capture.torch_.copies.torch_copier import TorchCopier

__all__ = ["KerasTorchCopier", "TorchBackend"]


class TorchBackend:
    """See `vinedresser.capture.keras_.backends.backend.Backend`."""

    def __init__(self) -> None:
        self.versions: dict[str, str] = {"torch": str(torch.__version__)}

    def copier(self, session: Session) -> KerasTorchCopier:
        """See `Backend.copier`."""
        return session.copier(KerasTorchCopier)

    def is_tensor(self, value: Any) -> bool:
        """See `Backend.is_tensor`."""
        return isinstance(value, (torch.Tensor, np.ndarray))

    def dense(self, value: Any) -> Any:
        """See `Backend.dense`; sparse tensors are converted when they are copied."""
        return value

    def read(self, variable: Any) -> Any:
        """See `Backend.read`."""
        return variable.value if isinstance(variable, keras.Variable) else variable

    def snapshot(self, variable: Any) -> Any:
        """See `Backend.snapshot`."""
        return variable.value.detach().clone()

    def tracing(self) -> bool:
        """See `Backend.tracing`."""
        return torch.compiler.is_compiling()

    def differentiating(self) -> bool:
        """See `Backend.differentiating`."""
        return torch.is_grad_enabled()

    def operations(self, shield: Shield) -> None:
        """See `Backend.operations`."""


class KerasTorchCopier(TorchCopier):
    """The `TensorCopier` of PyTorch tensors and NumPy arrays in the layout of Keras."""

    channels_last = True

    def is_scalar(self, value: Any) -> bool:
        """See `TensorCopier.is_scalar`."""
        return super().is_scalar(_tensor(value))

    def keep(self, recording: Recording, name: str, value: Any, ask: Ask) -> None:
        """See `TensorCopier.keep`.

        Raises:
            TypeError: The dtype cannot be stored.
        """
        super().keep(recording, name, _tensor(value), ask)

    def keep_scalar(self, recording: Recording, name: str, value: Any, weight: float) -> None:
        """See `TensorCopier.keep_scalar`."""
        super().keep_scalar(recording, name, _tensor(value), weight)


def _tensor(value: Any) -> torch.Tensor:
    return value if isinstance(value, torch.Tensor) else torch.as_tensor(np.asarray(value))
