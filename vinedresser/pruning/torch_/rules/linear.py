"""Convolutions and products of matrices: they read channels and make new ones."""

from __future__ import annotations

import numpy as np
import torch

from vinedresser.frameworks.torch_.call import Call
from vinedresser.pruning.group import Indices
from vinedresser.pruning.torch_.context import Context, Layer

__all__ = ["contract", "convolution", "product"]

_READ = "reading together with other channels"


def convolution(ctx: Context, call: Call) -> list[list[Layer]]:
    """The input's channels meet the weight's input axis; the output axis makes new ones."""
    x, weight, bias = call["input"], call["weight"], call["bias"]
    ctx.lock_all(x, "convolution over channels", range(2, x.ndim))
    ctx.lock_all(weight, "convolution over channels", range(2, weight.ndim))
    out_axis, in_axis = (1, 0) if call["transposed"] else (0, 1)
    made, read = ctx.at(weight, out_axis), ctx.at(weight, in_axis)
    groups = call["groups"]
    if groups > 1 and x.shape[1] == groups:
        labels = _depthwise(ctx, call, made, read)
    else:
        labels = _grouped(ctx, call, made, read)
    if bias is not None:
        own = ctx.at(bias, 0)
        labels = ctx.meet(labels, own, "convolution") if len(bias) > 1 else labels
        ctx.mark(own, "bias")
    pixels = (x if call["transposed"] else call.outputs[0]).shape
    times = pixels[0] * int(np.prod(pixels[2:]))
    ctx.use(made if made is not None else read, times)
    batch = [one for one in ctx.of(x) if one.dim == 0]
    return [batch if labels is None else [*batch, Layer(1, labels)]]


def _grouped(
    ctx: Context, call: Call, made: Indices | None, read: Indices | None
) -> Indices | None:
    """Every group loses the same number of channels, at the same places."""
    x, groups = ctx.at(call["input"], 1), call["groups"]
    if groups > 1 and call["transposed"]:
        if x is not None:
            ctx.tie_parts(x, groups)
        made = None if made is None else np.tile(made, groups)
    elif groups > 1:
        if made is not None:
            ctx.tie_parts(made, groups)
        read = None if read is None else np.tile(read, groups)
    if call["input"].shape[1] > 1:
        ctx.meet(x, read, "convolution of other channels")
    ctx.mark(read, "input")
    if not ctx.from_input(call["weight"]):
        ctx.make(made, "filters")
    return made


def _depthwise(
    ctx: Context, call: Call, made: Indices | None, read: Indices | None
) -> Indices | None:
    """Each channel has filters of its own: they go together, and so does the group."""
    x, groups = ctx.at(call["input"], 1), call["groups"]
    each = call.outputs[0].shape[1] // groups
    own = made
    if call["transposed"]:
        ctx.lock(made, "transposed depthwise convolution with several filters per channel")
        own = None if read is None else np.repeat(read, each)
    repeated = None if x is None else np.repeat(x, each)
    if own is None and not ctx.fixed(call["weight"], 0):
        labels = repeated
    else:
        labels = ctx.meet(repeated, own, "depthwise convolution")
        ctx.make(own, "filters")
    if labels is not None and x is not None:
        ctx.count_by(call, own, "groups", x)
    return labels


def product(ctx: Context, call: Call) -> list[list[Layer]]:
    """Matrix products, also with something added."""
    names = {"addmm": ("mat1", "mat2"), "baddbmm": ("batch1", "batch2"), "mm": ("self", "mat2")}
    first, second = names.get(call.name, ("self", "mat2" if call.has("mat2") else "vec2"))
    layers = contract(ctx, call, call[first], call[second])
    if call.name not in {"addmm", "baddbmm"}:
        return [layers]
    added = call["self"]
    united = {layer.dim: layer.labels for layer in layers}
    for dim in range(call.outputs[0].ndim):
        own_dim = dim - (call.outputs[0].ndim - added.ndim)
        if own_dim >= 0 and added.shape[own_dim] > 1:
            own = ctx.at(added, own_dim)
            labels = ctx.meet(united.pop(dim, None), own, "a bias")
            ctx.mark(own, "bias")
            if labels is not None:
                united[dim] = labels
    return [[Layer(dim, labels) for dim, labels in united.items()]]


def contract(ctx: Context, call: Call, one: torch.Tensor, other: torch.Tensor) -> list[Layer]:
    """Multiply matrices [..., rows, inner] and [..., inner, columns].

    Returns:
        The layers of the result.
    """
    _note_heads(ctx, one, other)
    inner, inner_other = ctx.at(one, -1), ctx.at(other, -2)
    if one.shape[-1] > 1:
        ctx.meet(inner, inner_other, f"{call.name} with other channels")
    rows, columns = ctx.at(one, -2), ctx.at(other, -1)
    count = call.outputs[0].shape[0] if one.ndim == 2 else 0
    if not ctx.from_input(other):
        ctx.mark(inner_other, "input")
        ctx.use(columns if columns is not None else inner_other, count)
        ctx.make(columns, "units")
    elif not ctx.from_input(one):
        ctx.mark(inner, "input")
        ctx.make(rows, "units")
    layers = [
        Layer(dim, labels)
        for dim, labels in ((one.ndim - 2, rows), (one.ndim - 1, columns))
        if labels is not None
    ]
    for dim in range(one.ndim - 2):
        labels = _batched(ctx, call, one, other, dim)
        if labels is not None:
            layers.append(Layer(dim, labels))
    return layers


def _batched(
    ctx: Context, call: Call, one: torch.Tensor, other: torch.Tensor, dim: int
) -> Indices | None:
    first, second = ctx.at(one, dim), ctx.at(other, dim)
    if (first is None) != (second is None):
        # Heads of one operand; those of the other may still be split off in the other way.
        ctx.is_units_of_heads(one)
        ctx.is_units_of_heads(other)
    labels = ctx.meet(first, second, f"{call.name} of batches")
    if labels is not None and ctx.from_input(one) and ctx.from_input(other):
        ctx.head_labels.append(labels)
    return labels


def _note_heads(ctx: Context, one: torch.Tensor, other: torch.Tensor) -> None:
    """Where two activations are multiplied over channels, these are units of attention heads."""
    if ctx.from_input(one) and ctx.from_input(other) and one.ndim == 3:
        for tensor, dim in ((one, 2), (other, 1)):
            if ctx.at(tensor, dim) is not None:
                ctx.is_units_of_heads(tensor)
