"""Operators that treat each element by itself."""

from __future__ import annotations

from vinedresser.frameworks.torch_.call import Call
from vinedresser.pruning.group import Indices
from vinedresser.pruning.torch_.context import Context, Layer

__all__ = ["elementwise", "filled_like", "identity"]

_CONSTANT = "combination with a tensor that is neither a parameter nor a buffer"


def elementwise(ctx: Context, call: Call) -> list[list[Layer]]:
    """Unite what is combined, after broadcasting."""
    result = call.outputs[0]
    united: dict[int, Indices] = {}
    for tensor in call.tensors:
        for layer in ctx.of(tensor):
            dim = layer.dim + result.ndim - tensor.ndim
            known = united.get(dim)
            united[dim] = (
                layer.labels if known is None else ctx.unite(known, layer.labels, _CONSTANT)
            )
    layers = []
    for dim, labels in united.items():
        if _meets_constant(ctx, call, dim, result.ndim):
            ctx.lock(labels, _CONSTANT)
        else:
            layers.append(Layer(dim, labels))
    return [layers]


def _meets_constant(ctx: Context, call: Call, dim: int, ndim: int) -> bool:
    for tensor in call.tensors:
        own = dim - (ndim - tensor.ndim)
        if own >= 0 and ctx.fixed(tensor, own):
            return True
    return False


def identity(ctx: Context, call: Call) -> list[list[Layer]]:
    """Keep the layers of the only tensor."""
    return [list(ctx.of(call.tensors[0])) for _ in call.outputs]


def filled_like(ctx: Context, call: Call) -> list[list[Layer]]:
    """A new tensor that is as large as another one shrinks with it."""
    return identity(ctx, call)
