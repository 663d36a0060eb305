"""Rules of what computes each element by itself, or from the same element of several tensors."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import keras
import numpy as np
from keras.src.ops import core, nn, numpy

from vinedresser.pruning.keras_.channels import Labelled, UnsupportedUse
from vinedresser.pruning.keras_.rules.call import Call, Rule, unlabelled

__all__ = ["RULES", "activated", "together"]

_layers = keras.layers
_FUNCTIONS = keras.activations
_ELEMENTWISE = frozenset(
    (
        _FUNCTIONS.celu, _FUNCTIONS.elu, _FUNCTIONS.exponential, _FUNCTIONS.gelu,
        _FUNCTIONS.hard_shrink, _FUNCTIONS.hard_sigmoid, _FUNCTIONS.hard_silu, _FUNCTIONS.hard_tanh,
        _FUNCTIONS.leaky_relu, _FUNCTIONS.linear, _FUNCTIONS.log_sigmoid, _FUNCTIONS.mish,
        _FUNCTIONS.relu, _FUNCTIONS.relu6, _FUNCTIONS.selu, _FUNCTIONS.sigmoid, _FUNCTIONS.silu,
        _FUNCTIONS.soft_shrink, _FUNCTIONS.softplus, _FUNCTIONS.softsign, _FUNCTIONS.sparse_plus,
        _FUNCTIONS.sparse_sigmoid, _FUNCTIONS.squareplus, _FUNCTIONS.tanh, _FUNCTIONS.tanh_shrink,
        _FUNCTIONS.threshold,
    )
)  # fmt: skip
_ALONG_THE_LAST = frozenset((_FUNCTIONS.softmax, _FUNCTIONS.log_softmax, _FUNCTIONS.sparsemax))
_UNARY_LAYERS = (
    _layers.ReLU, _layers.LeakyReLU, _layers.ELU, _layers.Identity, _layers.Dropout,
    _layers.SpatialDropout1D, _layers.SpatialDropout2D, _layers.SpatialDropout3D,
    _layers.AlphaDropout, _layers.GaussianDropout, _layers.GaussianNoise,
    _layers.ActivityRegularization,
)  # fmt: skip
_UNARY_OPERATIONS = (
    nn.Relu, nn.Relu6, nn.Sigmoid, nn.SparseSigmoid, nn.Softplus, nn.Softsign, nn.SoftShrink,
    nn.SparsePlus, nn.Silu, nn.Squareplus, nn.LogSigmoid, nn.LeakyRelu, nn.HardSigmoid,
    nn.HardSilu, nn.Elu, nn.Selu, nn.Gelu, nn.Celu, nn.TanhShrink, nn.HardTanh, nn.HardShrink,
    nn.Threshold, numpy.Absolute, numpy.Abs, numpy.Negative, numpy.Exp, numpy.Log, numpy.Log1p,
    numpy.Sqrt, numpy.Square, numpy.Tanh, numpy.Sin, numpy.Cos, numpy.Clip, numpy.Sign,
    core.Cast, core.StopGradient,
)  # fmt: skip
_MERGES = (
    _layers.Add, _layers.Subtract, _layers.Average, _layers.Maximum, _layers.Minimum,
    _layers.Multiply,
)  # fmt: skip
# Of any number of tensors.
_BINARY_OPERATIONS = (
    numpy.Add, numpy.Subtract, numpy.Multiply, numpy.Divide, numpy.TrueDivide, numpy.Maximum,
    numpy.Minimum, numpy.Power, numpy.Where, numpy.Greater, numpy.GreaterEqual, numpy.Less,
    numpy.LessEqual,
)  # fmt: skip


def activated(call: Call, tensor: Labelled, function: Any) -> Labelled:
    """Return the labels of a tensor after an activation.

    Args:
        call: the call that it belongs to.
        tensor: its input.
        function: the activation; None for none.

    Raises:
        UnsupportedUse: it may mix channels.
    """
    if isinstance(function, _UNARY_LAYERS):
        return tensor
    if function is not None and function not in _ELEMENTWISE:
        if function not in _ALONG_THE_LAST:
            name = str(getattr(function, "__name__", type(function).__name__))
            reason = f"the activation {name} of {call} may mix channels"
            call.channels.lock(tensor.labels, reason)
            raise UnsupportedUse(reason)
        _softmaxed(call, tensor, [tensor.rank - 1])
    return tensor


def _softmaxed(call: Call, tensor: Labelled, axes: Sequence[int]) -> None:
    varying = call.channels.varying(tensor)
    # A softmax depends on which elements there are, so channels lie along the other axes or stay.
    if any(axis in axes for axis in varying):
        call.channels.lock(tensor.labels, f"{call} is a softmax over channels")


def together(call: Call, tensors: Sequence[Labelled]) -> Labelled:
    """Return the labels of what is computed element by element from tensors of one rank.

    Args:
        tensors: its inputs; axes of length 1 are broadcast.
    """
    found = tensors[0]
    for other in tensors[1:]:
        found = _two(call, found, other)
    return Labelled(found.labels, call.output)


def _two(call: Call, one: Labelled, other: Labelled) -> Labelled:
    shape = np.broadcast_shapes(one.shape, other.shape)
    for first, second in ((one, other), (other, one)):
        if not second.has_channels and max(second.shape, default=1) == 1:
            return Labelled(first.labels, shape)
        varying = call.channels.varying(first)
        if varying and all(second.shape[axis] == 1 for axis in varying):
            # One value for all channels.
            call.channels.lock(second.labels, f"{call} combines it with several channels")
            return Labelled(first.labels, shape)
    one, other = (
        _merged_where_broadcast(call, one, other),
        _merged_where_broadcast(call, other, one),
    )
    reason = f"{call} combines it with what is not a channel"
    call.channels.unite(one.labels, other.labels, reason)
    return Labelled(np.where(one.labels == 0, other.labels, one.labels), shape)


def _merged_where_broadcast(call: Call, tensor: Labelled, other: Labelled) -> Labelled:
    """Return a tensor with its channels united where one element of another meets several."""
    axes = [
        axis for axis in range(tensor.rank) if other.shape[axis] == 1 and tensor.shape[axis] > 1
    ]
    return call.channels.merged(tensor, axes, f"{call} combines it with several channels")


def _unary(call: Call) -> list[Labelled]:
    return [call.inputs[0]]


def _activation(call: Call) -> list[Labelled]:
    return [activated(call, call.input, call.operation.activation)]


def _softmax(call: Call) -> list[Labelled]:
    tensor, axis = call.inputs[0], call.operation.axis
    given = axis if isinstance(axis, (list, tuple)) else [axis]
    axes = [one - 1 if one > 0 else one + tensor.rank for one in given if one is not None]
    if axis is None or min(axes) < 0 or len(call.inputs) > 1:
        raise UnsupportedUse(f"{call} mixes channels")
    _softmaxed(call, tensor, axes)
    return [tensor]


def _merge(call: Call) -> list[Labelled]:
    rank = max(tensor.rank for tensor in call.inputs)
    # As the layers do: tensors of lower rank get axes behind the batch axis.
    raised = [
        Labelled(
            tensor.labels.reshape((1,) * (rank - tensor.rank) + tensor.labels.shape),
            (1,) * (rank - tensor.rank) + tensor.shape,
        )
        for tensor in call.inputs
    ]
    return [together(call, raised)]


def _binary(call: Call) -> list[Labelled]:
    rank = len(call.output)
    tensors = []
    for one in (*call.args, *call.kwargs.values()):
        if isinstance(one, Labelled):
            if one.rank != rank:
                raise UnsupportedUse(f"{call} combines tensors of several ranks")
            tensors.append(one)
        elif one is not None:
            shape = tuple(np.shape(keras.ops.convert_to_numpy(one)))
            shape = (1,) * (rank + 1 - len(shape)) + shape
            if shape[0] != 1:
                raise UnsupportedUse(f"{call} has a constant for each example")
            tensors.append(unlabelled(shape[1:]))
    return [together(call, tensors)]


def _rescaling(call: Call) -> list[Labelled]:
    layer = call.operation
    if any(np.ndim(one) and np.size(one) > 1 for one in (layer.scale, layer.offset)):
        raise UnsupportedUse(f"{call} has a constant for each channel")
    return [call.input]


RULES: dict[type, Rule] = {
    **dict.fromkeys(_UNARY_LAYERS, _unary),
    **dict.fromkeys(_UNARY_OPERATIONS, _unary),
    **dict.fromkeys(_MERGES, _merge),
    **dict.fromkeys(_BINARY_OPERATIONS, _binary),
    **dict.fromkeys((_layers.Softmax, nn.Softmax, nn.LogSoftmax), _softmax),
    _layers.Activation: _activation,
    _layers.Rescaling: _rescaling,
}
