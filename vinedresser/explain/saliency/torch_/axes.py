"""Where the examples, rows and columns of the input lie in the tensors of a model."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import torch

from vinedresser.explain.saliency.axes import Axes, Axis, Role, reshaped
from vinedresser.frameworks.torch_.call import ATTENTION, Call

__all__ = ["axes_of_input", "axes_of_output", "axes_of_tokens"]

_RESHAPES = frozenset(("view", "_unsafe_view", "reshape", "_reshape_alias"))
_PRODUCTS = frozenset(("mm", "bmm", "addmm", "baddbmm"))
# Their results are as many pixels as they like, which show the same picture.
_RESIZES = ("convolution", "pool", "upsample", "pad", "grid_sampler")
# They may put pixels elsewhere.
_MOVES = frozenset(
    ("index", "index_select", "gather", "take", "flip", "roll", "sort", "topk", "as_strided")
)


def axes_of_input(tensor: torch.Tensor, *, channels_last: bool = False) -> Axes:
    """Return the axes of an input [batch, ...].

    Args:
        tensor: the input; [batch, C, H, W] has pixels.
        channels_last: images are [batch, H, W, C].
    """
    axes: dict[Role, Axis] = {"example": Axis(0, tensor.shape[0], 1)}
    if tensor.ndim == 4:
        row = 1 if channels_last else 2
        axes["row"] = Axis(row, tensor.shape[row], 1)
        axes["column"] = Axis(row + 1, tensor.shape[row + 1], 1)
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
        sources: its arguments that depend on the input, with their axes, before the call.
        place: number of the result among its results.
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
        return reshaped(source.shape, role, axis, output.shape)
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
