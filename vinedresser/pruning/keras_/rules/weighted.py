"""Rules of layers that make channels: convolutions, dense layers, embeddings."""

from __future__ import annotations

import math
from typing import Any

import keras
import numpy as np

from vinedresser.pruning.group import Indices
from vinedresser.pruning.keras_.channels import Labelled, UnsupportedUse
from vinedresser.pruning.keras_.rules.call import Call, Rule, channel_axis
from vinedresser.pruning.keras_.rules.elementwise import activated

_layers = keras.layers


def _read_channels(call: Call, axis: int) -> Indices:
    """Return the labels that a convolution reads: int64 [input channels]."""
    reason = f"{call} reads its channels as space"
    return call.channels.along(call.input, axis, reason)


def _output(call: Call, labels: Indices, axis: int) -> list[Labelled]:
    """Return a layer's output with labels along an axis, after bias and activation."""
    sizes = [1] * len(call.output)
    sizes[axis] = len(labels)
    output = Labelled(labels.reshape(sizes), call.output)
    return [activated(call, output, call.operation.activation)]


def _add_bias(call: Call, labels: Indices, kind: str = "filters") -> None:
    if call.operation.bias is not None:
        bias = call.axis(call.operation.bias, 0, "bias", kind)
        call.channels.unite(bias, labels, "")


def _spatial(shape: tuple[int, ...], axis: int) -> int:
    return math.prod(size for one, size in enumerate(shape) if one != axis)


def _convolution(call: Call) -> list[Labelled]:
    layer = call.operation
    axis = channel_axis(layer, call.input.rank)
    found = _read_channels(call, axis)
    kernel, rank = layer.kernel, layer.rank
    call.count(kernel, _spatial(call.output, axis))
    made = call.axis(kernel, rank + 1, "filter")
    _add_bias(call, made)
    width = len(found) // layer.groups
    if layer.groups > 1 and width == 1:
        call.own_filters[call.path] = layer
        # Every group has one channel: it goes with the filters that read it.
        reason = f"{call} has filters for what is not a channel"
        call.channels.unite(np.repeat(found, layer.filters // layer.groups), made, reason)
    else:
        # All groups read with the same axis, and have to stay of one size.
        for one in found.reshape(layer.groups, width):
            call.read(kernel, rank, one)
        outputs = made.reshape(layer.groups, -1)
        call.channels.unite(outputs, outputs[:1], "")
    return _output(call, made, axis)


def _transposed_convolution(call: Call) -> list[Labelled]:
    layer = call.operation
    axis = channel_axis(layer, call.input.rank)
    found = _read_channels(call, axis)
    call.count(layer.kernel, _spatial(call.input.shape, axis))
    call.read(layer.kernel, layer.rank + 1, found)
    made = call.axis(layer.kernel, layer.rank, "filter")
    _add_bias(call, made)
    return _output(call, made, axis)


def _depthwise_convolution(call: Call) -> list[Labelled]:
    layer = call.operation
    axis = channel_axis(layer, call.input.rank)
    call.count(layer.kernel, _spatial(call.output, axis))
    made = _depthwise(call, layer.kernel, _read_channels(call, axis))
    _add_bias(call, made)
    return _output(call, made, axis)


def _depthwise(call: Call, kernel: Any, found: Indices) -> Indices:
    """Tie a depthwise kernel to the channels that it reads; return the labels of its output."""
    own = call.axis(kernel, call.operation.rank, "filter")
    call.channels.unite(own, found, f"{call} has filters for what is not a channel")
    return np.repeat(own, call.operation.depth_multiplier)


def _separable_convolution(call: Call) -> list[Labelled]:
    layer = call.operation
    axis = channel_axis(layer, call.input.rank)
    for kernel in (layer.depthwise_kernel, layer.pointwise_kernel):
        call.count(kernel, _spatial(call.output, axis))
    middle = _depthwise(call, layer.depthwise_kernel, _read_channels(call, axis))
    call.read(layer.pointwise_kernel, layer.rank, middle)
    made = call.axis(layer.pointwise_kernel, layer.rank + 1, "filter")
    _add_bias(call, made)
    return _output(call, made, axis)


def _dense(call: Call) -> list[Labelled]:
    layer, tensor = call.operation, call.input
    last = tensor.rank - 1
    call.count(layer.kernel, math.prod(tensor.shape[:-1]))
    made = call.axis(layer.kernel, 1, "filter", "units")
    _add_bias(call, made, "units")
    if call.channels.varying(tensor) and last not in call.channels.varying(tensor):
        # Each row is of one channel, and so is what is computed from it.
        reason = f"{call} has units for positions, not for channels"
        call.channels.lock(call.axis(layer.kernel, 0, "input", "units"), reason)
        call.channels.lock(made, reason)
        output = Labelled(tensor.labels, call.output)
        return [activated(call, output, layer.activation)]
    found = call.channels.along(tensor, last, f"{call} reads its channels in turn")
    call.read(layer.kernel, 0, found)
    return _output(call, made, last)


def _embedding(call: Call) -> list[Labelled]:
    layer = call.operation
    if call.input.has_channels:
        raise UnsupportedUse(f"{call} uses it as indices")
    made = call.axis(layer.embeddings, 1, "filter", "units")
    return [Labelled(made.reshape((1,) * call.input.rank + (-1,)), call.output)]


RULES: dict[type, Rule] = {
    **dict.fromkeys((_layers.Conv1D, _layers.Conv2D, _layers.Conv3D), _convolution),
    **dict.fromkeys(
        (_layers.Conv1DTranspose, _layers.Conv2DTranspose, _layers.Conv3DTranspose),
        _transposed_convolution,
    ),
    **dict.fromkeys((_layers.DepthwiseConv1D, _layers.DepthwiseConv2D), _depthwise_convolution),
    **dict.fromkeys((_layers.SeparableConv1D, _layers.SeparableConv2D), _separable_convolution),
    _layers.Dense: _dense,
    _layers.Embedding: _embedding,
}
