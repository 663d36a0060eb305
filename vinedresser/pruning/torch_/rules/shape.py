"""Operators that only move elements: they are applied to the labels themselves."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch

from vinedresser.frameworks.torch_.call import Call, tensors_in
from vinedresser.pruning.group import Indices
from vinedresser.pruning.torch_.context import Context, Layer

__all__ = [
    "cat",
    "channel_shuffle",
    "glu",
    "index",
    "move",
    "pad",
    "pixel_shuffle",
    "reshape",
    "restride",
    "roll",
    "select",
    "slice_",
    "split",
    "stack",
]

_Move = Callable[[torch.Tensor], Any]


def _full(layer: Layer, tensor: torch.Tensor) -> torch.Tensor:
    """Return the labels of a layer for every element, int64; only one dimension has memory."""
    sizes = [1] * tensor.ndim
    sizes[layer.dim] = -1
    # The operator may have other arguments on the same device.
    return torch.from_numpy(layer.labels).to(tensor.device).view(sizes).expand(tensor.shape)


def _table(ctx: Context, full: torch.Tensor) -> torch.Tensor:
    """Return labels with length 1 along the dimensions in which no label varies.

    Labels that are united count as equal.
    """
    for dim in range(full.ndim):
        if full.shape[dim] > 1 and full.stride(dim) == 0:
            full = full.narrow(dim, 0, 1)
    full = full.cpu()
    roots = torch.from_numpy(ctx.labels.roots(full.contiguous().numpy()))
    for dim in range(full.ndim):
        if full.shape[dim] > 1 and bool((roots == roots.narrow(dim, 0, 1)).all()):
            full, roots = full.narrow(dim, 0, 1), roots.narrow(dim, 0, 1)
    return full


def _layer(ctx: Context, call: Call, full: torch.Tensor) -> list[Layer]:
    """Return the layer of labels that were moved; where several dimensions could shrink, choose."""
    if full.numel() == 0:
        return []
    table = _table(ctx, full)
    dims = [dim for dim, size in enumerate(table.shape) if size > 1]
    labels: Indices = table.contiguous().numpy()
    if not dims:
        ctx.lock(labels.ravel(), f"{call.name} of a single channel")
        return []
    if len(dims) == 1:
        return [Layer(dims[0], labels.ravel())]
    order = _preferred(ctx, dims, full.ndim)
    dim = order[ctx.choose(call, labels.ravel(), len(order))]
    rows = np.moveaxis(labels, dim, 0).reshape(labels.shape[dim], -1)
    for column in rows.T[1:]:
        ctx.unite(rows[:, 0], column, f"{call.name} of padded channels")
    return [Layer(dim, rows[:, 0].copy())]


def _preferred(ctx: Context, dims: list[int], ndim: int) -> list[int]:
    """Return dimensions in the order in which they are tried: which of them shrinks.

    Channels of an image before its pixels; heads before their units, which are the last dimension;
    else what is inside, as the number of parts is a constant where channels are shuffled.
    """
    if dims == list(range(1, ndim)):
        return dims
    if ctx.order in ctx.heads or dims[-1] == ndim - 1:
        return [*reversed(dims[:-1]), dims[-1]]
    return dims[::-1]


def _moved(
    ctx: Context,
    call: Call,
    tensor: torch.Tensor,
    apply: _Move,
    *,
    dims: frozenset[int] = frozenset(),
) -> list[list[Layer]]:
    """Apply an operator to the labels of a tensor.

    Args:
        apply: the operator, of labels of every element.
        dims: dimensions whose layers are locked and left out.
    """
    found: list[list[Layer]] = [[] for _ in call.outputs]
    for layer in ctx.of(tensor):
        if layer.dim in dims:
            ctx.lock(layer.labels, f"{call.name} of channels by number")
            continue
        for place, part in enumerate(tensors_in([apply(_full(layer, tensor))])):
            found[place] += _layer(ctx, call, part)
    return found


def move(ctx: Context, call: Call) -> list[list[Layer]]:
    """Apply the operator as it is."""
    return _moved(ctx, call, call.tensors[0], call.run)


def reshape(ctx: Context, call: Call) -> list[list[Layer]]:
    """View, reshape and the like; the user's code may have the sizes as numbers."""
    result = call.outputs[0]
    layers = _moved(ctx, call, call.tensors[0], lambda full: full.reshape(result.shape))
    _note_sizes(ctx, call, layers)
    return layers


def restride(ctx: Context, call: Call) -> list[list[Layer]]:
    """Set strides that change nothing, as pooling does for images with channels last."""
    tensor, result = call.tensors[0], call.outputs[0]
    sizes = list(result.shape)
    dense = [int(np.prod(sizes[dim + 1 :])) for dim in range(len(sizes))]
    same = all(
        size == 1 or stride == own
        for size, stride, own in zip(sizes, result.stride(), dense, strict=True)
    )
    if call.in_place and same and not ctx.shares_memory(tensor):
        return [list(ctx.of(tensor))]
    ctx.lock_all(tensor, call.name)
    return [[]]


def _note_sizes(ctx: Context, call: Call, found: list[list[Layer]]) -> None:
    for tensor, layers in zip(call.outputs, found, strict=True):
        for layer in layers:
            ctx.sized(call, tensor.shape[layer.dim], layer.labels)


def split(ctx: Context, call: Call) -> list[list[Layer]]:
    """Cut a dimension; parts of equal size shrink alike, else only the last part."""
    tensor = call.tensors[0]
    dim = call["dim"] % tensor.ndim
    labels = ctx.at(tensor, dim)
    if labels is not None:
        sizes = [part.shape[dim] for part in call.outputs]
        if ctx.choose(call, labels, 2) == 0 and len(set(sizes)) == 1:
            ctx.tie_parts(labels, len(sizes))
        else:
            ctx.lock(labels[: len(labels) - sizes[-1]], f"{call.name} with a constant size")
    layers = _moved(ctx, call, tensor, call.run)
    _note_sizes(ctx, call, layers)
    return layers


def slice_(ctx: Context, call: Call) -> list[list[Layer]]:
    """A part of a dimension: one of several that shrink alike, or one side has a constant size."""
    tensor = call.tensors[0]
    dim = call["dim"] % tensor.ndim
    labels = ctx.at(tensor, dim)
    if labels is not None:
        start, end, step = slice(call["start"], call["end"], call["step"]).indices(len(labels))
        if (start, end, step) != (0, len(labels), 1):
            _cut(ctx, call, labels, (start, end, step))
    layers = _moved(ctx, call, tensor, call.run)
    _note_sizes(ctx, call, layers)
    return layers


def _cut(ctx: Context, call: Call, labels: Indices, part: tuple[int, int, int]) -> None:
    start, end, step = part
    size = end - start
    why = f"{call.name} with a constant size"
    boundary = end if start == 0 else start
    if step != 1 or size <= 0:
        ctx.lock(labels, why)
        return
    ways = ["start is constant", "end is constant"]
    if len(labels) % size == 0 and start % size == 0:
        ways.insert(0, "equal parts")
    way = ways[ctx.choose(call, labels, len(ways))]
    if way == "equal parts":
        ctx.tie_parts(labels, len(labels) // size)
    elif way == "start is constant":
        ctx.lock(labels[:boundary] if start == 0 or end == len(labels) else labels, why)
    else:
        ctx.lock(labels[boundary:], why)


def select(ctx: Context, call: Call) -> list[list[Layer]]:
    """One index of a dimension."""
    tensor = call.tensors[0]
    dims = frozenset({call["dim"] % tensor.ndim})
    return _moved(ctx, call, tensor, call.run, dims=dims)


def index(ctx: Context, call: Call) -> list[list[Layer]]:
    """Elements by index tensors; channels that are not indexed keep their labels."""
    tensor = call.tensors[0]
    if call.name == "index":
        dims = frozenset(dim for dim, one in enumerate(call["indices"]) if one is not None)
        indexes = [one for one in call["indices"] if one is not None]
        if any(one.dtype == torch.bool for one in indexes):
            dims = frozenset(range(tensor.ndim))
    else:
        dims = frozenset({call["dim"] % tensor.ndim})
        indexes = [call["index"]]
    for one in indexes:
        ctx.lock_all(one, f"{call.name} by a computed index")
    return _moved(ctx, call, tensor, call.run, dims=dims)


def roll(ctx: Context, call: Call) -> list[list[Layer]]:
    """Rotate dimensions."""
    tensor = call.tensors[0]
    dims = frozenset(dim % tensor.ndim for dim in call["dims"]) or frozenset(range(tensor.ndim))
    return _moved(ctx, call, tensor, call.run, dims=dims)


def pad(ctx: Context, call: Call) -> list[list[Layer]]:
    """Pad with a constant, or cut; padded channels have no label, padded pixels their channel's.

    The sizes of the padding begin with the last dimension.
    """
    tensor, sizes = call.tensors[0], list(call["pad"])
    layers = []
    for layer in ctx.of(tensor):
        place = 2 * (tensor.ndim - 1 - layer.dim)
        labels = torch.from_numpy(layer.labels)
        padded = torch.constant_pad_nd(labels, sizes[place : place + 2])
        layers.append(Layer(layer.dim, padded.numpy()))
    return [layers]


def cat(ctx: Context, call: Call) -> list[list[Layer]]:
    """Join tensors: labels one after the other in that dimension, united in the others."""
    # Tensors of shape [0] are allowed and left out.
    tensors = [one for one in call["tensors"] if one.ndim == call.outputs[0].ndim]
    return [_joined(ctx, call, tensors, call["dim"] % tensors[0].ndim)]


def _joined(ctx: Context, call: Call, tensors: list[torch.Tensor], dim: int) -> list[Layer]:
    layers = []
    for other in range(tensors[0].ndim):
        found = [ctx.at(tensor, other) for tensor in tensors]
        if all(labels is None for labels in found):
            continue
        if other == dim:
            parts = [
                np.zeros(tensor.shape[dim], dtype=np.int64) if labels is None else labels
                for tensor, labels in zip(tensors, found, strict=True)
            ]
            layers.append(Layer(dim, np.concatenate(parts)))
            continue
        labels = found[0]
        for further in found[1:]:
            labels = ctx.meet(labels, further, f"{call.name} with other tensors")
        if labels is not None:
            layers.append(Layer(other, labels))
    return layers


def stack(ctx: Context, call: Call) -> list[list[Layer]]:
    """Join tensors in a new dimension."""
    dim = call["dim"] % call.outputs[0].ndim
    layers = _joined(ctx, call, list(call["tensors"]), -1)
    return [[Layer(layer.dim + (layer.dim >= dim), layer.labels) for layer in layers]]


def pixel_shuffle(ctx: Context, call: Call) -> list[list[Layer]]:
    """Channels become pixels: those of one resulting channel are united."""
    tensor = call.tensors[0]
    dim = tensor.ndim - 3
    labels = ctx.at(tensor, dim)
    if call.name == "pixel_unshuffle":
        times = int(call["downscale_factor"]) ** 2
        moved = [] if labels is None else [Layer(dim, np.repeat(labels, times))]
    elif labels is None:
        moved = []
    else:
        table = labels.reshape(call.outputs[0].shape[dim], -1)
        for column in table.T[1:]:
            ctx.unite(table[:, 0], column, f"{call.name} of padded channels")
        moved = [Layer(dim, table[:, 0].copy())]
    ctx.lock_all(tensor, f"{call.name} of pixels", range(dim + 1, tensor.ndim))
    return [moved + [one for one in ctx.of(tensor) if one.dim < dim]]


def channel_shuffle(ctx: Context, call: Call) -> list[list[Layer]]:
    """Interleave equal parts of the channels."""
    labels = ctx.at(call.tensors[0], 1)
    if labels is not None:
        ctx.tie_parts(labels, int(call["groups"]))
    return _moved(ctx, call, call.tensors[0], call.run)


def glu(ctx: Context, call: Call) -> list[list[Layer]]:
    """Multiply one half with a function of the other."""
    tensor = call.tensors[0]
    dim = call["dim"] % tensor.ndim
    labels = ctx.at(tensor, dim)
    others = [one for one in ctx.of(tensor) if one.dim != dim]
    return [others if labels is None else [*others, Layer(dim, ctx.tie_parts(labels, 2))]]
