"""The backend of a model's framework, imported only for models of it."""

from __future__ import annotations

import sys

from vinedresser.errors import PruningError
from vinedresser.pruning.backend import Backend


def backend_of(model: object) -> Backend:
    """Return the backend for a model.

    Raises:
        PruningError: it is not a model of a supported framework.
    """
    torch, keras = sys.modules.get("torch"), sys.modules.get("keras")
    # With Keras' PyTorch backend, its models are torch modules, too.
    if keras is not None and isinstance(model, keras.Model):
        from vinedresser.pruning.keras_.backend import KerasBackend

        return KerasBackend()
    if torch is not None and isinstance(model, torch.nn.Module):
        from vinedresser.pruning.torch_.backend import TorchBackend

        return TorchBackend()
    raise PruningError(
        f"{type(model).__name__} cannot be pruned: it must be a torch.nn.Module or a keras.Model"
    )
