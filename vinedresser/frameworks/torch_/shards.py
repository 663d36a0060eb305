"""Shards of distributed tensors: the parts that ranks keep of a step, and the whole."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

__all__ = ["Shard", "has_shards", "is_distributed", "shard_place", "whole"]


@dataclass(frozen=True)
class Shard:
    """One rank's part of a tensor that is cut along one axis.

    Attributes:
        number: number of the part, from 0.
        parts: number of parts.
    """

    tensor: Tensor
    axis: int
    number: int
    parts: int


def is_distributed(tensor: Tensor) -> bool:
    """Return whether a tensor is distributed over ranks, as the parameters of `fully_shard`."""
    return type(tensor) is not Tensor and hasattr(tensor, "to_local")


def shard_place(tensor: Any) -> list[int] | None:
    """Return axis, number of this rank's part, and number of parts; None for a replica.

    Args:
        tensor: a distributed tensor.

    Raises:
        ValueError: it is distributed in another way.
    """
    mesh, world = tensor.device_mesh, torch.distributed.get_world_size()
    if mesh.ndim == 1:
        [placement] = tensor.placements
        if placement.is_replicate():
            return None
        if mesh.size() == world and type(placement).__name__ == "Shard":
            return [placement.dim, mesh.get_local_rank(), mesh.size()]
    placed = ", ".join(map(str, tensor.placements))
    among = "" if mesh.size() == world else f" among {mesh.size()} of {world} ranks"
    raise ValueError(f"a tensor that is distributed as ({placed}){among} cannot be stored")


def has_shards(value: Any) -> bool:
    """Return whether nested values hold shards."""
    if isinstance(value, dict):
        return any(map(has_shards, value.values()))
    if isinstance(value, list | tuple):
        return any(map(has_shards, value))
    return isinstance(value, Shard)


def whole(values: Sequence[Any]) -> Any:
    """Return nested values of all ranks as those of one process: the first, with joined shards.

    A joined tensor is on the device that its shard in the first of the values is on.

    Raises:
        KeyError, ValueError: the values of the ranks do not fit together.
    """
    first = values[0]
    if not has_shards(first):
        return first
    if isinstance(first, dict):
        return {key: whole([one[key] for one in values]) for key in first}
    if isinstance(first, list):
        return [whole(each) for each in zip(*values, strict=True)]
    parts = sorted(values, key=lambda one: one.number)
    numbers = [*range(len(parts))]
    if len(parts) != first.parts or [one.number for one in parts] != numbers:
        raise ValueError(f"not the {first.parts} shards of a tensor")
    try:
        return torch.cat([one.tensor.to(first.tensor.device) for one in parts], first.axis)
    except RuntimeError as error:
        raise ValueError(f"the shards of a tensor do not fit together: {error}") from error
