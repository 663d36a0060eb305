"""Saving a torch model's weights when its training is stopped."""

from __future__ import annotations

import os
from pathlib import Path

import torch
from safetensors.torch import save_file
from torch import nn

from vinedresser.capture.torch_.names import unwrapped

__all__ = ["save_checkpoint"]


def save_checkpoint(model: nn.Module, directory: Path, step: int) -> Path:
    """Save a model's state as ``step-<step>.safetensors``, whole or not at all.

    ``model.load_state_dict(safetensors.torch.load_file(path))`` brings it back. A tensor that
    several names share is stored under each. What a state dictionary holds beside tensors is left
    out, and named in the file's metadata under "left_out".

    Args:
        model: as it is trained; the wrappers of torch around it are not saved.
        directory: where to; made if missing.
        step: optimizer steps done.
    """
    tensors: dict[str, torch.Tensor] = {}
    left_out: list[str] = []
    memory: set[int] = set()
    for name, value in unwrapped(model).state_dict().items():
        if not isinstance(value, torch.Tensor):
            left_out.append(name)
            continue
        plain = value.detach().cpu().contiguous()
        storage = plain.untyped_storage().data_ptr()
        # A tensor that shares memory with one before is refused by safetensors.
        tensors[name] = plain.clone() if storage in memory else plain
        memory.add(storage)
    directory.mkdir(parents=True, exist_ok=True)
    path = directory / f"step-{step}.safetensors"
    temporary = directory / f".tmp-{os.getpid()}-{path.name}"
    metadata = {"format": "pt", "step": str(step), "left_out": ",".join(left_out)}
    save_file(tensors, temporary, metadata)
    os.replace(temporary, path)
    return path
