"""The operators of a traced model that depend on its input, with their implicit biases."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import tensorflow as tf

from vinedresser.explain.saliency.axes import Axes
from vinedresser.explain.saliency.keras_.axes import axes_of_input, axes_of_output

__all__ = ["Found", "Noted", "noted_operators"]

# They look up the embeddings of token ids.
_LOOKUPS = frozenset(("ResourceGather", "GatherV2", "Gather"))


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
    axes = axes_of_input(given.shape.as_list(), channels_last=channels_last, tokens=tokens)
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
                known[output.ref()] = axes_of_output(output, sources)
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
