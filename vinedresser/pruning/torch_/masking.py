"""The original model in which nothing reads removed channels."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from vinedresser.frameworks.torch_.call import ATTENTION, Call
from vinedresser.pruning.group import Indices
from vinedresser.pruning.torch_.context import Context

_READERS = {"convolution": ("input", 1), "mm": ("self", -1), "bmm": ("self", -1)} | {
    "addmm": ("mat1", -1),
    "baddbmm": ("batch1", -1),
    **dict.fromkeys(ATTENTION, ("query", 3)),
}


class Masking:
    """Runs each operator of a traced model as if some channels were absent.

    Where channels are read, they are set to 0; normalisations over channels leave them out. All
    channels are still computed, and no tensor shrinks.

    Args:
        removed: labels of the removed channels.
    """

    def __init__(self, removed: Indices) -> None:
        self._removed = removed

    def __call__(self, ctx: Context, call: Call) -> Any:
        """Run an operator."""
        if call.name == "native_layer_norm":
            x = call["input"]
            return self._layer_norm(ctx, call, x.ndim - len(call["normalized_shape"]))
        if call.name == "native_group_norm" and call["group"] < call["input"].shape[1]:
            return self._group_norm(ctx, call)
        if call.name in _READERS:
            name, dim = _READERS[call.name]
            tensor = call[name]
            kept = self._kept(ctx, tensor, dim % tensor.ndim)
            if kept is not None:
                before = call.args[: call.place(name)]
                return call.run(*before, tensor.masked_fill(~kept, 0))
        return call.run()

    def _kept(self, ctx: Context, tensor: torch.Tensor, dim: int) -> torch.Tensor | None:
        """Return bool [1, .., channels, .., 1]: which are left; None if all are."""
        labels = ctx.at(tensor, dim)
        if labels is None:
            return None
        kept = torch.from_numpy(~np.isin(labels, self._removed))
        if kept.all():
            return None
        sizes = [1] * tensor.ndim
        sizes[dim] = -1
        return kept.to(tensor.device).view(sizes)

    def _layer_norm(self, ctx: Context, call: Call, first: int) -> Any:
        x = call["input"]
        dims = list(range(first, x.ndim))
        found = [self._kept(ctx, x, dim) for dim in dims]
        masks = [one for one in found if one is not None]
        if not masks:
            return call.run()
        kept = torch.ones_like(x, dtype=torch.bool)
        for mask in masks:
            kept = kept & mask
        normal, mean, deviation = _normalised(x, kept, dims, call["eps"])
        if call["weight"] is not None:
            normal = normal * call["weight"]
        if call["bias"] is not None:
            normal = normal + call["bias"]
        return normal, mean, deviation

    def _group_norm(self, ctx: Context, call: Call) -> Any:
        x, groups = call["input"], call["group"]
        mask = self._kept(ctx, x, 1)
        if mask is None:
            return call.run()
        parts = (x.shape[0], groups, -1)
        normal, mean, deviation = _normalised(
            x.reshape(parts), mask.expand(x.shape).reshape(parts), [2], call["eps"]
        )
        normal = normal.reshape(x.shape)
        sizes = (1, -1, *(1 for _ in x.shape[2:]))
        if call["weight"] is not None:
            normal = normal * call["weight"].view(sizes)
        if call["bias"] is not None:
            normal = normal + call["bias"].view(sizes)
        return normal, mean.flatten(1), deviation.flatten(1)


def _normalised(
    x: torch.Tensor, kept: torch.Tensor, dims: list[int], eps: float
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Return x normalised over its kept elements, their mean and one over their deviation."""
    count = kept.sum(dims, keepdim=True)
    mean = (x * kept).sum(dims, keepdim=True) / count
    variance = ((x - mean).square() * kept).sum(dims, keepdim=True) / count
    deviation = (variance + eps).rsqrt()
    return (x - mean) * deviation, mean, deviation
