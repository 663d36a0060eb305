"""Takes torch tensors of Keras into recordings."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from vinedresser.capture.config.capture_config import Ask
from vinedresser.capture.hook.recording import Recording
from vinedresser.capture.torch_.copies.keeper import TorchKeeper

__all__ = ["KerasTorchKeeper"]


class KerasTorchKeeper(TorchKeeper):
    """The `Keeper` of torch tensors in the layout of Keras; a training hands it arrays as well."""

    channels_last = True

    def is_scalar(self, value: Any) -> bool:
        """See `Keeper.is_scalar`."""
        return super().is_scalar(_tensor(value))

    def keep(self, recording: Recording, name: str, value: Any, ask: Ask) -> None:
        """See `Keeper.keep`.

        Raises:
            TypeError: its dtype cannot be stored.
        """
        super().keep(recording, name, _tensor(value), ask)

    def keep_scalar(self, recording: Recording, name: str, value: Any, weight: float) -> None:
        """See `Keeper.keep_scalar`."""
        super().keep_scalar(recording, name, _tensor(value), weight)


def _tensor(value: Any) -> torch.Tensor:
    return value if isinstance(value, torch.Tensor) else torch.as_tensor(np.asarray(value))
