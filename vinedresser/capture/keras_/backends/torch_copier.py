"""Copying of PyTorch tensors of Keras into recordings."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from vinedresser.capture.config.capture_config import Ask
from vinedresser.capture.recording.recording import Recording
from vinedresser.capture.torch_.copies.torch_copier import TorchCopier

__all__ = ["KerasTorchCopier"]


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
