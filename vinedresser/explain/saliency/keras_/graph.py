"""The operators of a traced model that depend on its input, with their implicit biases."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import tensorflow as tf

from vinedresser.explain.saliency.axes import Axes, Axis, Role, reshaped

__all__ = ["Found", "Noted", "noted_operators"]

# They look up the embeddings of token ids.
_LOOKUPS = frozenset(("ResourceGather", "GatherV2", "Gather"))
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


class Noted(NamedTuple):
    """A result of an operator whose implicit bias is not zero.

    Attributes:
        layer: path of the layer; "" for the model itself.
        operator: type of the operator.
        scope: scope of the operator in the graph, which is that of one call of a layer, or part of
            it.
        output: the symbolic result.
        bias: its implicit bias, broadcastable to it.
        axes: where examples and pixels lie in it.
    """

    layer: str
    operator: str
    scope: str
    output: Any
    bias: Any
    axes: Axes


class Found(NamedTuple):
    """What depends on the input.

    Attributes:
        leaves: tensors with respect to which the model is explained: the input, or the embeddings
            of token ids.
        axes: those of the leaves.
        noted: the operators, in their order.
        uncovered: operators without a derivative, with their layers.
    """

    leaves: list[Any]
    axes: Axes
    noted: list[Noted]
    uncovered: dict[str, None]


def noted_operators(
    operators: list[Any], given: Any, layers: frozenset[str], *, channels_last: bool
) -> Found:
    """Follow the input through a graph.

    Args:
        operators: all operators, in the order of their creation.
        layers: names of all layers.
        channels_last: images are [batch, H, W, C].
    """
    tokens = not given.dtype.is_floating
    axes = _axes_of_input(given.shape.as_list(), channels_last=channels_last, tokens=tokens)
    found = Found([] if tokens else [given], axes, [], {})
    known: dict[Any, Axes] = {} if tokens else {given.ref(): axes}
    ids = {given.ref()} if tokens else set()
    # Lists of tensors, in which loops keep what depends on the input.
    lists: set[Any] = set()
    for operator in operators:
        dependent = [one for one in operator.inputs if one.ref() in known]
        listed = any(one.ref() in lists for one in operator.inputs)
        looked_up = not dependent and any(one.ref() in ids for one in operator.inputs)
        for output in operator.outputs:
            if output.dtype == tf.variant and (dependent or listed):
                lists.add(output.ref())
            elif listed and output.dtype.is_floating:
                known[output.ref()] = {}
                found.uncovered[_place(operator, layers)] = None
            elif dependent and output.dtype.is_floating:
                sources = [(one, known[one.ref()]) for one in dependent]
                known[output.ref()] = _axes_of_output(output, sources)
                _note(found, output, dependent, known[output.ref()], layers)
            elif looked_up and operator.type in _LOOKUPS and output.dtype.is_floating:
                if output.shape[:-1] == given.shape:
                    found.leaves.append(output)
                    known[output.ref()] = axes
            elif looked_up:
                ids.add(output.ref())
    return found


def _note(
    found: Found, output: Any, dependent: list[Any], axes: Axes, layers: frozenset[str]
) -> None:
    operator = output.op
    scope = operator.name.rpartition("/")[0]
    layer = _layer(scope, layers)
    try:
        bias = _implicit_bias(output, dependent)
    except (LookupError, NotImplementedError):
        found.uncovered[_place(operator, layers)] = None
        return
    if bias is not None:
        found.noted.append(Noted(layer, operator.type, scope, output, bias, axes))


def _place(operator: Any, layers: frozenset[str]) -> str:
    layer = _layer(operator.name.rpartition("/")[0], layers)
    return f"{operator.type} in {layer or 'the model'}"


def _layer(scope: str, layers: frozenset[str]) -> str:
    """Return the path of a layer whose call has a scope in the graph.

    Keras opens the scope of a layer twice, so that TensorFlow appends a number to its name.
    """
    parts = (part.rpartition("_")[0] for part in scope.split("/"))
    return "/".join(part for part in parts if part in layers)


def _names(*lists: str) -> frozenset[str]:
    return frozenset(name for names in lists for name in names.split())


# Homogeneous of degree 1 in the first argument, the others being constant.
_LINEAR = _names(
    "Identity Reshape Transpose Squeeze ExpandDims StridedSlice Slice Pad MirrorPad Cast Tile",
    "BroadcastTo GatherV2 Split SplitV Unpack Reverse ReverseV2 Roll Neg Abs Relu LeakyRelu",
    "Mean Sum Max Min Cumsum MaxPool MaxPool3D AvgPool AvgPool3D",
    "Conv2D Conv3D DepthwiseConv2dNative ResizeBilinear ResizeNearestNeighbor ResizeBicubic",
    "SpaceToBatchND BatchToSpaceND SpaceToDepth DepthToSpace MatrixTranspose",
)
# The same in any one argument, and in all together.
_PRODUCTS = _names(
    "Mul MatMul BatchMatMul BatchMatMulV2 BatchMatMulV3 Einsum",
    "Conv2DBackpropInput Conv3DBackpropInputV2",
)
_SUMS = _names("AddV2 Add AddN Sub ConcatV2 Pack Maximum Minimum")
_DEGREES = {"Square": 2.0, "Sqrt": 0.5, "Rsqrt": -0.5, "Reciprocal": -1.0, "Inv": -1.0}
_DEGREES["StopGradient"] = 0.0


def _is_differentiable(operator: Any) -> bool:
    """Return whether an operator has a derivative; others are constants to a gradient.

    Raises:
        LookupError: TensorFlow does not know.
    """
    from tensorflow.python.framework.ops import get_gradient_function

    return get_gradient_function(operator) is not None


def _implicit_bias(output: Any, dependent: Sequence[Any]) -> Any | None:
    """Return the implicit bias of a result of an operator, broadcastable to it; None for zero.

    Args:
        dependent: the operator's arguments that depend on the model's input.

    Raises:
        LookupError: the operator has no gradient, or its gradient has none.
    """
    operator = output.op
    name, arguments = operator.type, list(operator.inputs)
    degree = _degree(name, arguments, dependent)
    if degree is None and not _is_differentiable(operator):
        degree = 0.0
    if degree is not None:
        return None if degree == 1 else (1 - degree) * output
    first = _is_among(arguments[0], dependent)
    if name == "BiasAdd" and first and len(dependent) == 1:
        channels_first = operator.get_attr("data_format") == b"NCHW"
        shape = [1, -1, *[1] * (len(output.shape) - 2)] if channels_first else [-1]
        return tf.reshape(arguments[1], shape)
    if name in ("AddV2", "Add", "Sub") and len(dependent) == 1:
        constant = arguments[1] if first else arguments[0]
        return -constant if first and name == "Sub" else constant
    return _by_two_gradients(output, dependent)


def _degree(name: str, arguments: Sequence[Any], dependent: Sequence[Any]) -> float | None:
    """Return the degree of homogeneity in the arguments, or None if there is none."""
    tensors = [argument for argument in arguments if argument.dtype.is_floating]
    only_first = len(dependent) == 1 and arguments[0] is dependent[0]
    if name in _LINEAR and only_first:
        return 1.0
    if name in _PRODUCTS:
        return float(len(dependent))
    if name in _SUMS and len(tensors) == len(dependent):
        return 1.0
    if name in ("RealDiv", "Div"):
        above, below = (_is_among(argument, dependent) for argument in arguments)
        return float(above - below)
    if name == "SquaredDifference" and len(dependent) == 2:
        return 2.0
    return _DEGREES.get(name)


def _is_among(tensor: Any, tensors: Sequence[Any]) -> bool:
    return any(tensor is one for one in tensors)


def _by_two_gradients(output: Any, dependent: Sequence[Any]) -> Any:
    """Return y - J x; the gradient of <v, J^T ...> with respect to v gives J x."""
    seed = tf.ones_like(output)
    inputs = list(dependent)
    backward = tf.gradients(output, inputs, grad_ys=seed, stop_gradients=inputs)
    pairs = [(g, x) for g, x in zip(backward, inputs, strict=True) if g is not None]
    if not pairs:
        return output
    gradients = [tf.convert_to_tensor(g) for g, _ in pairs]
    (product,) = tf.gradients(gradients, seed, grad_ys=[x for _, x in pairs])
    return output if product is None else output - product


def _axes_of_input(shape: Sequence[int], *, channels_last: bool, tokens: bool) -> Axes:
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


def _axes_of_output(output: Any, sources: Sequence[tuple[Any, Axes]]) -> Axes:
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
