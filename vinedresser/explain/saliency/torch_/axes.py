"""Where the examples, rows and columns of the input lie in the tensors of a model."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Literal, NamedTuple

import torch

from vinedresser.pruning.torch_.call import Call
from vinedresser.pruning.torch_.rules.table import ATTENTION

__all__ = ["Axes", "Axis", "Role", "axes_of_input", "axes_of_output", "axes_of_tokens"]

Role = Literal["example", "row", "column"]


class Axis(NamedTuple):
    """Part of a dimension: at position i of it, the index is (i // stride) % size.

    Attributes:
        dim: the dimension.
        size: number of examples, rows or columns.
        stride: number of consecutive positions with the same index.
    """

    dim: int
    size: int
    stride: int


Axes = Mapping[Role, Axis]

_RESHAPES = frozenset(("view", "_unsafe_view", "reshape", "_reshape_alias"))
_PRODUCTS = frozenset(("mm", "bmm", "addmm", "baddbmm"))
# Their results are as many pixels as they like, which show the same picture.
_RESIZES = ("convolution", "pool", "upsample", "pad", "grid_sampler")
# They may put pixels elsewhere.
_MOVES = frozenset(
    ("index", "index_select", "gather", "take", "flip", "roll", "sort", "topk", "as_strided")
)


def axes_of_input(tensor: torch.Tensor) -> Axes:
    """Return the axes of an input [batch, ...]; those of pixels if it is [batch, C, H, W]."""
    axes: dict[Role, Axis] = {"example": Axis(0, tensor.shape[0], 1)}
    if tensor.ndim == 4:
        axes["row"] = Axis(2, tensor.shape[2], 1)
        axes["column"] = Axis(3, tensor.shape[3], 1)
    return axes


def axes_of_tokens(embeddings: torch.Tensor) -> Axes:
    """Return the axes of embeddings [batch, tokens, width]; tokens are rows without columns."""
    batch, tokens = embeddings.shape[:2]
    return {"example": Axis(0, batch, 1), "row": Axis(1, tokens, 1)}


def axes_of_output(
    call: Call, sources: Sequence[tuple[torch.Tensor, Axes]], place: int, output: torch.Tensor
) -> Axes:
    """Return the axes of a result of an operator; one that cannot be followed is missing.

    Args:
        call: the call.
        sources: its arguments that depend on the input, with their axes, before the call.
        place: number of the result among its results.
        output: the result.
    """
    _, known = sources[0]
    if call.pointwise and all(
        tensor.shape == output.shape and axes == known for tensor, axes in sources
    ):
        return known
    found: dict[Role, Axis] = {}
    for tensor, axes in sources:
        # An operand of fewer dimensions is broadcast; the first one that has an axis decides.
        for role, axis in axes.items():
            if role not in found:
                moved = _moved(call, tensor, role, axis, _Result(place, output))
                if moved is not None:
                    found[role] = moved
    return found


class _Result(NamedTuple):
    """A result of an operator, and its number among the results."""

    place: int
    tensor: torch.Tensor


def _moved(
    call: Call, source: torch.Tensor, role: Role, axis: Axis, result: _Result
) -> Axis | None:
    """Return where an axis of an argument lies in a result."""
    output = result.tensor
    if call.name in _RESHAPES:
        return _reshaped(source, role, axis, output)
    if call.operator.is_view and call.name != "as_strided":
        return _viewed(call, source, axis, result)
    elsewhere = call.name in ATTENTION and source is not call["query"]
    if role != "example" and (call.name in _MOVES or elsewhere):
        return None
    dim: int | None = axis.dim
    if call.name in _PRODUCTS:
        second = source is call["mat2" if call.has("mat2") else "batch2"]
        contracted = source.ndim - (2 if second else 1)
        dim = None if axis.dim == contracted else axis.dim
    elif call.pointwise:
        dim = axis.dim + output.ndim - source.ndim
    elif call.name == "stack":
        dim = axis.dim + (axis.dim >= call["dim"] % output.ndim)
    elif output.ndim < source.ndim:
        dim = _reduced(call, source, axis.dim, output)
    elif output.ndim > source.ndim:
        dim = None
    return None if dim is None else _resized(call, source, axis, dim, output)


def _resized(
    call: Call, source: torch.Tensor, axis: Axis, dim: int, output: torch.Tensor
) -> Axis | None:
    """Return an axis in another dimension, perhaps of another length."""
    length = output.shape[dim]
    if length == source.shape[axis.dim]:
        return axis if dim == axis.dim else axis._replace(dim=dim)
    whole = axis.stride == 1 and axis.size == source.shape[axis.dim]
    if whole and axis.dim >= 2 and any(word in call.name for word in _RESIZES):
        return Axis(dim, length, 1)
    return None


def _reduced(call: Call, source: torch.Tensor, dim: int, output: torch.Tensor) -> int | None:
    """Return the place of a dimension after others are gone, or None if it is unknown."""
    if not call.has("dim") or call["dim"] is None:
        return None
    given = call["dim"]
    listed: list[int] = [*given] if isinstance(given, list | tuple) else [given]
    dims = {one % source.ndim for one in listed}
    if dim in dims or source.ndim - len(dims) != output.ndim:
        return None
    return dim - sum(one < dim for one in dims)


def _reshaped(source: torch.Tensor, role: Role, axis: Axis, output: torch.Tensor) -> Axis | None:
    """Return an axis after the elements, in their order, got another shape."""
    if axis.size == 1 and role != "example" and output.ndim != source.ndim:
        return None
    stride = axis.stride * source.shape[axis.dim + 1 :].numel()
    inner = 1
    for dim in reversed(range(output.ndim)):
        outer = inner * output.shape[dim]
        whole = outer % (stride * axis.size) == 0 and stride % inner == 0
        if whole and stride < outer:
            return Axis(dim, axis.size, stride // inner)
        inner = outer
    return None


def _viewed(call: Call, source: torch.Tensor, axis: Axis, result: _Result) -> Axis | None:
    """Return an axis in a view, found by a tensor without data that only it strides through."""
    strides = [0] * source.ndim
    strides[axis.dim] = 1
    probe = torch.empty_strided(source.shape, strides, device="meta", dtype=source.dtype)
    made = call.run(probe)
    view = made if isinstance(made, torch.Tensor) else made[result.place]
    dims = [dim for dim in range(view.ndim) if view.stride(dim) and view.shape[dim] > 1]
    if source.shape[axis.dim] == 1:
        return axis if view.ndim == source.ndim else None
    if len(dims) != 1 or view.stride(dims[0]) != 1:
        return None
    return axis._replace(dim=dims[0]) if view.shape[dims[0]] == source.shape[axis.dim] else None
