"""Following examples, rows and columns through the operators of TensorFlow."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import tensorflow as tf

from vinedresser.explain.saliency.axes import Axes, Axis, Role, reshaped

__all__ = ["axes_of_input", "axes_of_output"]

_RESHAPES = frozenset(("Reshape", "Squeeze", "ExpandDims"))
_RESIZES = ("Conv", "Pool", "Resize", "Pad")
# They put examples or pixels elsewhere.
_MOVES = frozenset(
    (
        *("GatherV2", "GatherNd", "ResourceGather", "Reverse", "ReverseV2", "Roll", "TopKV2"),
        *("SpaceToBatchND", "BatchToSpaceND", "SpaceToDepth", "DepthToSpace"),
        *("While", "StatelessWhile"),
    )
)


def axes_of_input(shape: Sequence[int], *, channels_last: bool, tokens: bool) -> Axes:
    """Return the axes of an input.

    Args:
        shape: its shape, [batch, ...].
        channels_last: images are [batch, H, W, C], not [batch, C, H, W].
        tokens: it is [batch, tokens, ...].
    """
    axes: dict[Role, Axis] = {"example": Axis(0, shape[0], 1)}
    if tokens:
        axes["row"] = Axis(1, shape[1], 1)
    elif len(shape) == 4:
        row = 1 if channels_last else 2
        axes["row"] = Axis(row, shape[row], 1)
        axes["column"] = Axis(row + 1, shape[row + 1], 1)
    return axes


def axes_of_output(output: Any, sources: Sequence[tuple[Any, Axes]]) -> Axes:
    """Return the axes of a result of an operator; one that cannot be followed is missing.

    Args:
        output: the symbolic result, of known shape.
        sources: the operator's arguments that depend on the input, with their axes.
    """
    found: dict[Role, Axis] = {}
    if output.op.type in _MOVES:
        return found
    for tensor, axes in sources:
        for role, axis in axes.items():
            moved = None if role in found else _moved(output, tensor, role, axis)
            if moved is not None:
                found[role] = moved
    return found


def _moved(output: Any, source: Any, role: Role, axis: Axis) -> Axis | None:
    """Return where an axis of an argument lies in a result."""
    operator = output.op
    before, after = source.shape.as_list(), output.shape.as_list()
    if operator.type in _RESHAPES:
        return reshaped(before, role, axis, after)
    dim = _dim(operator, source, axis.dim, len(before), len(after))
    if dim is None or not 0 <= dim < len(after):
        return None
    if after[dim] == before[axis.dim]:
        return axis._replace(dim=dim)
    whole = axis.stride == 1 and axis.size == before[axis.dim]
    if whole and role != "example" and any(word in operator.type for word in _RESIZES):
        return Axis(dim, after[dim], 1)
    return None


def _dim(operator: Any, source: Any, dim: int, before: int, after: int) -> int | None:
    """Return where a dimension of an argument lies in a result."""
    rule = _RULES.get(operator.type)
    if rule is not None:
        return rule(operator, source, dim)
    # Operands of fewer dimensions are broadcast.
    return dim + after - before


def _transposed(operator: Any, _: Any, dim: int) -> int | None:
    order = tf.get_static_value(operator.inputs[1])
    return None if order is None else int(order.tolist().index(dim))


def _reduced(operator: Any, source: Any, dim: int) -> int | None:
    gone = tf.get_static_value(operator.inputs[1])
    if operator.get_attr("keep_dims"):
        return dim
    return None if gone is None else _beside(gone.reshape(-1).tolist(), dim, len(source.shape))


def _sliced(operator: Any, source: Any, dim: int) -> int | None:
    if operator.get_attr("new_axis_mask") or operator.get_attr("ellipsis_mask"):
        return None
    mask, count = operator.get_attr("shrink_axis_mask"), len(source.shape)
    return _beside([one for one in range(count) if mask >> one & 1], dim, count)


def _stacked(operator: Any, source: Any, dim: int) -> int | None:
    return dim + int(dim >= operator.get_attr("axis") % (len(source.shape) + 1))


def _unstacked(operator: Any, source: Any, dim: int) -> int | None:
    return _beside([operator.get_attr("axis")], dim, len(source.shape))


def _beside(gone: Sequence[int], dim: int, count: int) -> int | None:
    """Return the place of a dimension after others are gone."""
    dims = {one % count for one in gone}
    return None if dim in dims else dim - sum(one < dim for one in dims)


def _in_equation(operator: Any, source: Any, dim: int) -> int | None:
    """Return where a dimension lies in the result of an einsum."""
    left, _, right = operator.get_attr("equation").decode().partition("->")
    if "." in left:
        return None
    place = next(n for n, one in enumerate(operator.inputs) if one is source)
    label = left.split(",")[place][dim]
    return right.index(label) if label in right else None


def _in_product(operator: Any, source: Any, dim: int) -> int | None:
    """Return where a dimension lies in a product of matrices."""
    first = operator.inputs[0] is source
    batched = operator.type.startswith("Batch")
    names = ("adj_x", "adj_y") if batched else ("transpose_a", "transpose_b")
    turned = operator.get_attr(names[0] if first else names[1])
    before, after = len(source.shape), len(operator.outputs[0].shape)
    if dim == (before - 1 if first != turned else before - 2):
        return None
    if dim >= before - 2:
        return after - 2 if first else after - 1
    return dim + after - before


_Rule = Callable[[Any, Any, int], int | None]
_RULES: dict[str, _Rule] = {
    "Transpose": _transposed,
    "Einsum": _in_equation,
    "StridedSlice": _sliced,
    "Pack": _stacked,
    "Unpack": _unstacked,
    **dict.fromkeys(("MatMul", "BatchMatMul", "BatchMatMulV2", "BatchMatMulV3"), _in_product),
    **dict.fromkeys(("Mean", "Sum", "Max", "Min", "Prod"), _reduced),
}
