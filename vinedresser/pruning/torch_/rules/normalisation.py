"""Normalisations: batch, layer, group, and of weights."""

from __future__ import annotations

import torch

from vinedresser.frameworks.torch_.call import Call
from vinedresser.pruning.group import Indices, Role
from vinedresser.pruning.torch_.context import Context, Layer

__all__ = ["batch_norm", "group_norm", "layer_norm", "weight_norm"]

_ROLES: dict[str, Role] = {
    "weight": "scale",
    "bias": "shift",
    "running_mean": "running",
    "running_var": "running",
}


def _affine(
    ctx: Context, call: Call, labels: Indices | None, axis: int, *, required: bool
) -> Indices | None:
    """Unite channels with the parameters and statistics of a normalisation, along one axis."""
    for name, role in _ROLES.items():
        tensor: torch.Tensor | None = call[name] if call.has(name) else None
        if tensor is None or tensor.shape[axis] == 1:
            continue
        own = ctx.at(tensor, axis)
        ctx.mark(own, role)
        labels = ctx.meet(labels, own, f"{call.name} of other channels") if required else labels
    return labels


def batch_norm(ctx: Context, call: Call) -> list[list[Layer]]:
    """Each channel is normalised by itself."""
    x = call["input"]
    ctx.lock_all(x, "batch_norm over channels", [0, *range(2, x.ndim)])
    labels = _affine(ctx, call, ctx.at(x, 1), 0, required=True)
    return _first(call, [] if labels is None else [Layer(1, labels)])


def layer_norm(ctx: Context, call: Call) -> list[list[Layer]]:
    """Channels are normalised over those that are left."""
    x = call["input"]
    first = x.ndim - len(call["normalized_shape"])
    layers = [one for one in ctx.of(x) if one.dim < first]
    for axis in range(x.ndim - first):
        labels = ctx.at(x, first + axis)
        labels = _affine(ctx, call, labels, axis, required=x.shape[first + axis] > 1)
        if labels is not None:
            layers.append(Layer(first + axis, labels))
    return _first(call, layers)


def group_norm(ctx: Context, call: Call) -> list[list[Layer]]:
    """Each group loses the same number of channels, or whole groups go if they have one channel."""
    x, groups = call["input"], call["group"]
    ctx.lock_all(x, "group_norm over channels", range(2, x.ndim))
    labels = ctx.at(x, 1)
    if labels is not None and groups == len(labels):
        weight = call["weight"]
        ctx.count_by(call, None if weight is None else ctx.at(weight, 0), "num_groups", labels)
    elif labels is not None and groups > 1:
        ctx.tie_parts(labels, groups)
    labels = _affine(ctx, call, labels, 0, required=x.shape[1] > 1)
    batch = [one for one in ctx.of(x) if one.dim == 0]
    return _first(call, batch if labels is None else [*batch, Layer(1, labels)])


def weight_norm(ctx: Context, call: Call) -> list[list[Layer]]:
    """Direction times length: the lengths keep their channels; what remains is rescaled."""
    v, g = call["v"], call["g"]
    layers = [one for one in ctx.of(v) if one.dim != call["dim"]]
    own = ctx.at(v, call["dim"])
    if own is not None:
        labels = ctx.meet(own, ctx.at(g, call["dim"]), "weight_norm")
        ctx.mark(ctx.at(g, call["dim"]), "scale")
        layers += [] if labels is None else [Layer(call["dim"], labels)]
    for layer in [one for one in layers if one.dim != call["dim"]]:
        if not _rescalable(ctx, layer.labels):
            ctx.lock(layer.labels, "weight_norm over channels")
            layers.remove(layer)
    return _first(call, layers)


def _rescalable(ctx: Context, labels: Indices) -> bool:
    """Whether the surgery knows the layer: its lengths are adapted to the channels that remain."""
    names = [ctx.labels.axes[place].tensor for place in ctx.labels.owners(labels)]
    return all(name.endswith((".weight.original1", "weight_v")) for name in names)


def _first(call: Call, layers: list[Layer]) -> list[list[Layer]]:
    """Only the first output has channels; the others are statistics for the backward pass."""
    return [layers, *([] for _ in call.outputs[1:])]
