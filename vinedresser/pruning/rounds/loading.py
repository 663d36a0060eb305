"""Loading the weights of a trained model from a file, in any of the usual formats."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from vinedresser.errors import PruningError
from vinedresser.pruning.backends import backend_of

__all__ = ["load_weights"]


def load_weights(model: Any, path: Path) -> None:
    """Load weights by the suffix of their file.

    Args:
        model: a torch.nn.Module or a keras.Model.
        path: a file ``.safetensors``, ``.pt``, ``.pth`` or ``.weights.h5``.

    Raises:
        PruningError: the file is missing or damaged, or has the weights of another model.
    """
    if path.suffix == ".safetensors":
        backend_of(model).read_weights(model, path)
        return
    readers: dict[str, Callable[[Any, Path], None]] = {
        ".pt": _load_state_dict,
        ".pth": _load_state_dict,
        ".h5": _load_keras,
    }
    if path.suffix not in readers:
        raise PruningError(
            f"{path}: not a file of weights: expected .safetensors, .pt, .pth or .weights.h5"
        )
    readers[path.suffix](model, path)


def _load_state_dict(model: Any, path: Path) -> None:
    """Load a state dict, or the "model" of a hook's checkpoint, without unpickling objects."""
    import pickle

    import torch

    try:
        state = torch.load(path, map_location="cpu", weights_only=True)
        model.load_state_dict(state.get("model", state))
    except (OSError, pickle.UnpicklingError, RuntimeError, AttributeError, TypeError) as error:
        reason = str(error).strip().splitlines()
        raise PruningError(f"{path}: not the weights of this model: {' '.join(reason)}") from error


def _load_keras(model: Any, path: Path) -> None:
    try:
        model.load_weights(path)
    except (OSError, ValueError) as error:
        raise PruningError(f"{path}: not the weights of this model: {error}") from error
