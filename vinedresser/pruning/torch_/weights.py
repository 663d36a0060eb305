"""Weights of torch models in safetensors files."""

from __future__ import annotations

from pathlib import Path

import torch
from safetensors.torch import load_file, save_file
from torch import nn

from vinedresser.errors import PruningError
from vinedresser.objects.files import replacing
from vinedresser.pruning.weights import METADATA, add_checksum, check_shapes, reading

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
        save_file(tensors, part, metadata=METADATA)
        add_checksum(part)


def read_weights(model: nn.Module, path: Path) -> None:
    """Load parameters and buffers into a model.

    Raises:
        PruningError: the file is missing or damaged, or its tensors do not fit the model.
    """
    with reading(path) as opened:
        tensors = load_file(opened)
    wanted = {name: tuple(one.shape) for name, one in model.state_dict().items()}
    check_shapes(path, {name: tuple(one.shape) for name, one in tensors.items()}, wanted)
    model.load_state_dict(tensors)
