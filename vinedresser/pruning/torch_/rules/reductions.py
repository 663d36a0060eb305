"""Operators that combine elements of a dimension, and those on the pixels of images."""

from __future__ import annotations

import torch

from vinedresser.frameworks.torch_.call import Call
from vinedresser.pruning.torch_.context import Context, Layer

__all__ = ["along", "embedding", "reduce", "spatial"]


def _listed(call: Call, ndim: int) -> list[int]:
    dims = call["dim"] if call.has("dim") else None
    if dims is None or dims == []:
        return list(range(ndim))
    return [dim % max(1, ndim) for dim in (dims if isinstance(dims, list | tuple) else [dims])]


def reduce(ctx: Context, call: Call) -> list[list[Layer]]:
    """Reduce dimensions; their channels are locked, as a mean or maximum needs all of them."""
    tensor = call.tensors[0]
    dims = _listed(call, tensor.ndim)
    keep = call.has("keepdim") and call["keepdim"]
    ctx.lock_all(tensor, f"{call.name} over channels", dims)
    layers = [
        Layer(one.dim if keep else one.dim - sum(dim < one.dim for dim in dims), one.labels)
        for one in ctx.of(tensor)
        if one.dim not in dims
    ]
    return [layers for _ in call.outputs]


def along(ctx: Context, call: Call) -> list[list[Layer]]:
    """Softmax, cumulative sums: elements of a dimension depend on each other, and stay."""
    tensor = call.tensors[0]
    dims = _listed(call, tensor.ndim)
    ctx.lock_all(tensor, f"{call.name} over channels", dims)
    layers = [one for one in ctx.of(tensor) if one.dim not in dims]
    return [layers for _ in call.outputs]


def spatial(ctx: Context, call: Call) -> list[list[Layer]]:
    """Pooling, resizing, padding by reflection: dimensions of pixels change, channels do not."""
    tensor = call.tensors[0]
    pixels = tensor.ndim - int(next(one for one in call.name if one in "123"))
    ctx.lock_all(tensor, f"{call.name} over channels", range(pixels, tensor.ndim))
    layers = [one for one in ctx.of(tensor) if one.dim < pixels]
    return [layers for _ in call.outputs]


def embedding(ctx: Context, call: Call) -> list[list[Layer]]:
    """Rows of a table: its columns are channels."""
    weight: torch.Tensor = call["weight"]
    ctx.lock_all(weight, "rows of an embedding", [0])
    ctx.lock_all(call["indices"], "indices of an embedding")
    columns = ctx.at(weight, 1)
    if columns is None:
        return [[]]
    ctx.make(columns, "units")
    return [[Layer(call.outputs[0].ndim - 1, columns)]]
