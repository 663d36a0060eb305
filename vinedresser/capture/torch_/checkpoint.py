"""Saving a torch model's weights when its training is stopped."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from safetensors.torch import save_file
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from vinedresser.capture.torch_.names import unwrapped

__all__ = ["save_checkpoint"]


def save_checkpoint(model: nn.Module, directory: Path, step: int) -> Path | None:
    """Save a model's state as ``step-<step>.safetensors``, whole or not at all.

    ``model.load_state_dict(safetensors.torch.load_file(path))`` brings it back. A tensor that
    several names share is stored under each. What a state dictionary holds beside tensors is left
    out, and named in the file's metadata under "left_out".

    No rank waits for another one: the others may not be stopping. Further ranks save what they have
    as ``step-<step>.rank-<rank>.safetensors``, but for the replicas of data parallelism, which are
    all the same. Of a sharded model each rank, also the first, so saves its shards; the metadata
    under "sharded" tells for each name the whole ``shape``, the ``placements`` on the ``mesh`` (its
    shape), and this rank's ``coordinate`` in it.

    Args:
        model: as it is trained; the wrappers of torch around it are not saved.
        directory: where to; made if missing.
        step: optimizer steps done.

    Returns:
        Where it lies; None of a replica.
    """
    rank = dist.get_rank() if dist.is_available() and dist.is_initialized() else 0
    if rank and isinstance(model, DistributedDataParallel):
        return None
    tensors: dict[str, torch.Tensor] = {}
    left_out: list[str] = []
    sharded: dict[str, dict[str, Any]] = {}
    memory: set[int] = set()
    for name, value in unwrapped(model).state_dict().items():
        if not isinstance(value, torch.Tensor):
            left_out.append(name)
            continue
        ours = value
        if hasattr(value, "to_local"):
            sharded[name] = _placed(value)
            ours = value.to_local()
        plain = ours.detach().cpu().contiguous()
        storage = plain.untyped_storage().data_ptr()
        # A tensor that shares memory with one before is refused by safetensors.
        tensors[name] = plain.clone() if storage in memory else plain
        memory.add(storage)
    directory.mkdir(parents=True, exist_ok=True)
    whose = f".rank-{rank}" if rank or sharded else ""
    path = directory / f"step-{step}{whose}.safetensors"
    temporary = directory / f".tmp-{os.getpid()}-{path.name}"
    metadata = {"format": "pt", "step": str(step), "left_out": ",".join(left_out)}
    if sharded:
        metadata["sharded"] = json.dumps(sharded)
    save_file(tensors, temporary, metadata)
    os.replace(temporary, path)
    return path


def _placed(value: Any) -> dict[str, Any]:
    """Return where the shard of a distributed tensor belongs, as plain JSON types."""
    mesh = value.device_mesh
    return {
        "shape": list(value.shape),
        "placements": [str(one) for one in value.placements],
        "mesh": list(mesh.shape),
        "coordinate": mesh.get_coordinate(),
    }
