"""Saving the weights of a torch model."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from vinedresser.capture.run.launcher_libraries import check_library, import_library
from vinedresser.frameworks.torch_.names import unwrapped
from vinedresser.objects.files import replacing

check_library("safetensors")


def save_checkpoint(model: nn.Module, directory: Path, step: int, called: str = "") -> None:
    """Save a model's state atomically as ``step-<step>.safetensors``, or ``step-<step>-<name>``.

    Load it with ``model.load_state_dict(safetensors.torch.load_file(path))``. A tensor with several
    names is stored under each. Entries of the state dictionary that are not tensors are omitted and
    listed in the file's metadata under "left_out".

    Ranks do not wait for each other, since others may not train. Ranks other than 0 save
    ``step-<step>.rank-<rank>.safetensors``, except identical replicas of data parallelism. Of a
    sharded model, every rank saves its shards this way; the metadata under "sharded" has, for each
    name, the full ``shape``, the ``placements`` on the ``mesh`` (its shape), and this rank's
    ``coordinate`` in the mesh.

    Args:
        model: the trained model; torch's wrappers around it are not saved.
        directory: target directory, created if missing.
        step: number of finished optimizer steps.
        called: name of the model, of several; "" for none.

    Raises:
        OSError: the file cannot be written.
    """
    rank = dist.get_rank() if dist.is_available() and dist.is_initialized() else 0
    if rank and isinstance(model, DistributedDataParallel):
        return
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
        # safetensors rejects tensors that share memory.
        tensors[name] = plain.clone() if storage in memory else plain
        memory.add(storage)
    whose = f".rank-{rank}" if rank or sharded else ""
    metadata = {"format": "pt", "step": str(step), "left_out": ",".join(left_out)}
    if sharded:
        metadata["sharded"] = json.dumps(sharded)
    library = import_library("safetensors.torch")
    stem = f"step-{step}-{called}" if called else f"step-{step}"
    with replacing(directory / f"{stem}{whose}.safetensors") as path:
        library.save_file(tensors, path, metadata)


def _placed(value: Any) -> dict[str, Any]:
    """Return the position of a distributed tensor's shard as plain JSON types."""
    mesh = value.device_mesh
    return {
        "shape": list(value.shape),
        "placements": [str(placement) for placement in value.placements],
        "mesh": list(mesh.shape),
        "coordinate": mesh.get_coordinate(),
    }
