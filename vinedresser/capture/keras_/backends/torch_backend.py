"""The PyTorch backend."""

from __future__ import annotations

from typing import Any

import keras
import numpy as np
import torch

from vinedresser.capture.keras_.backends.torch_copier import KerasTorchCopier
from vinedresser.capture.recording.session import Session

__all__ = ["TorchBackend"]


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
