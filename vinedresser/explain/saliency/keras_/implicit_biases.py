"""The implicit bias of each TensorFlow operator: y - J x, as `torch_.implicit_biases` has it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import tensorflow as tf

__all__ = ["implicit_bias", "is_differentiable"]


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


def is_differentiable(operator: Any) -> bool:
    """Return whether an operator has a derivative; others are constants to a gradient.

    Raises:
        LookupError: TensorFlow does not know.
    """
    from tensorflow.python.framework.ops import get_gradient_function

    return get_gradient_function(operator) is not None


def implicit_bias(output: Any, dependent: Sequence[Any]) -> Any | None:
    """Return the implicit bias of a result of an operator, broadcastable to it; None for zero.

    Args:
        output: the symbolic result.
        dependent: the operator's arguments that depend on the model's input.

    Raises:
        LookupError: the operator has no gradient, or its gradient has none.
    """
    operator = output.op
    name, arguments = operator.type, list(operator.inputs)
    degree = _degree(name, arguments, dependent)
    if degree is None and not is_differentiable(operator):
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
