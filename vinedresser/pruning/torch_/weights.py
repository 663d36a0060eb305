"""Weights of torch models in safetensors files."""

from __future__ import annotations

from pathlib import Path

import safetensors
import torch
from safetensors.torch import load_file, save_file
from torch import nn

from vinedresser.capture.adapters.checkpoint import replacing
from vinedresser.errors import PruningError

__all__ = ["read_weights", "write_weights"]


def write_weights(model: nn.Module, path: Path) -> None:
    """Write a model's parameters and buffers atomically.

    A tensor with several names is written under each.

    Raises:
        PruningError: the state of the model has something other than tensors.
        OSError: the file cannot be written.
    """
    tensors: dict[str, torch.Tensor] = {}
    for name, value in model.state_dict().items():
        if not isinstance(value, torch.Tensor):
            raise PruningError(f"{name}: {type(value).__name__}: only tensors can be saved")
        # A clone, since safetensors rejects tensors that share memory.
        tensors[name] = value.detach().cpu().contiguous().clone()
    with replacing(path) as part:
        save_file(tensors, part)


def read_weights(model: nn.Module, path: Path) -> None:
    """Load parameters and buffers into a model.

    Raises:
        PruningError: the file is missing or damaged, or its tensors do not fit the model.
    """
    try:
        tensors = load_file(path)
    except FileNotFoundError as error:
        raise PruningError(f"{path}: no such file") from error
    except (OSError, safetensors.SafetensorError) as error:
        raise PruningError(f"{path}: not a readable safetensors file: {error}") from error
    wanted = {name: tuple(one.shape) for name, one in model.state_dict().items()}
    found = {name: tuple(one.shape) for name, one in tensors.items()}
    for name in sorted({*wanted, *found}):
        if wanted.get(name) != found.get(name):
            raise PruningError(
                f"{path}: {name}: has shape {_shown(found.get(name))} in the file and "
                f"{_shown(wanted.get(name))} in the model"
            )
    model.load_state_dict(tensors)


def _shown(shape: tuple[int, ...] | None) -> str:
    return "none (it is missing)" if shape is None else str(list(shape))
