"""Rules of what moves, joins, cuts or pools elements."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import keras
import numpy as np
from keras.src.ops import nn, numpy

from vinedresser.pruning.keras_.channels import Labelled, UnsupportedUse, labelled
from vinedresser.pruning.keras_.rules.call import Call, Rule, channel_axis

__all__ = ["RULES", "without_batch"]

_layers = keras.layers


def without_batch(axis: int, rank: int, call: Call) -> int:
    """Return an axis, counted with the batch axis, as one of a tensor without it.

    Raises:
        UnsupportedUse: it is the batch axis.
    """
    found = (axis + rank + 1 if axis < 0 else axis) - 1
    if found < 0:
        raise UnsupportedUse(f"{call} mixes examples")
    return found


def _reshape(call: Call) -> list[Labelled]:
    tensor = call.inputs[0]
    if np.prod(tensor.shape) != np.prod(call.output):
        raise UnsupportedUse(f"{call} mixes examples")
    return [labelled(tensor.full().reshape(call.output), call.output)]


def _flatten(call: Call) -> list[Labelled]:
    tensor = call.input
    labels = tensor.full()
    if tensor.rank and channel_axis(call.operation, tensor.rank) == 0:
        labels = np.moveaxis(labels, 0, -1)
    return [labelled(labels.reshape(-1), call.output)]


def _permuted(tensor: Labelled, axes: Sequence[int]) -> list[Labelled]:
    return [Labelled(tensor.labels.transpose(axes), tuple(tensor.shape[axis] for axis in axes))]


def _permute(call: Call) -> list[Labelled]:
    return _permuted(call.input, [one - 1 for one in call.operation.dims])


def _transpose(call: Call) -> list[Labelled]:
    operation, tensor = call.operation, call.input
    # The operation itself says what it does to axes, also for numbers below 0.
    order = np.arange(tensor.rank + 1)
    if isinstance(operation, numpy.Transpose):
        given = operation.axes
        order = order[::-1] if given is None else order[list(given)]
    elif isinstance(operation, numpy.Swapaxes):
        order[[operation.axis1, operation.axis2]] = order[[operation.axis2, operation.axis1]]
    else:
        moved = np.moveaxis(np.empty(tuple(order)), operation.source, operation.destination)
        order = np.array(moved.shape)
    if order[0] != 0:
        raise UnsupportedUse(f"{call} mixes examples")
    return _permuted(tensor, (order[1:] - 1).tolist())


def _concatenate(call: Call) -> list[Labelled]:
    tensors = call.inputs
    rank = len(call.output)
    axis = without_batch(call.operation.axis, rank, call)
    sizes = [
        max(tensor.labels.shape[one] for tensor in tensors) if one != axis else None
        for one in range(rank)
    ]
    parts = [
        np.broadcast_to(
            tensor.labels,
            [tensor.shape[one] if size is None else size for one, size in enumerate(sizes)],
        )
        for tensor in tensors
    ]
    return [labelled(np.concatenate(parts, axis), call.output)]


def _stack(call: Call) -> list[Labelled]:
    axis = without_batch(call.operation.axis, len(call.output) - 1, call)
    parts = [tensor.full() for tensor in call.inputs]
    return [labelled(np.stack(parts, axis), call.output)]


def _new_shape(call: Call) -> list[Labelled]:
    """Axes of length 1 come or go."""
    tensor = call.input
    return [labelled(tensor.full().reshape(call.output), call.output)]


def _repeat_vector(call: Call) -> list[Labelled]:
    return [Labelled(call.input.labels[None], call.output)]


def _get_item(call: Call) -> list[Labelled]:
    tensor = call.input
    key = call.args[1]
    keys = list(key) if isinstance(key, tuple) else [key]
    if any(not isinstance(one, (int, slice, type(Ellipsis), type(None))) for one in keys):
        raise UnsupportedUse(f"{call} takes elements by computed indices")
    if keys[0] is not Ellipsis and keys[0] != slice(None):
        raise UnsupportedUse(f"{call} takes some of the examples")
    if any(isinstance(one, slice) and one.step not in (None, 1) for one in keys):
        call.channels.lock(tensor.labels, f"{call} takes elements at a step")
    rest = keys if keys[0] is Ellipsis else keys[1:]
    return [labelled(tensor.full()[tuple(rest)], call.output)]


def _split(call: Call) -> list[Labelled]:
    tensor = call.input
    axis = without_batch(call.operation.axis, tensor.rank, call)
    sizes = [shape[axis] for shape in call.shapes]
    parts = np.split(tensor.full(), np.cumsum(sizes)[:-1], axis)
    return [labelled(part, shape) for part, shape in zip(parts, call.shapes, strict=True)]


def _local(call: Call) -> list[Labelled]:
    """Pooling windows, padding, cropping and resizing of all axes but the channels'."""
    tensor = call.input
    axis = channel_axis(call.operation, tensor.rank)
    space = [one for one in range(tensor.rank) if one != axis]
    merged = call.channels.merged(tensor, space, f"{call} takes its channels for space")
    return [Labelled(merged.labels, call.output)]


def _reduced(call: Call, axes: Sequence[int]) -> list[Labelled]:
    tensor = call.input
    merged = call.channels.merged(tensor, axes, f"{call} computes one value of several channels")
    if len(call.output) == tensor.rank:
        return [Labelled(merged.labels, call.output)]
    return [Labelled(merged.labels.squeeze(tuple(axes)), call.output)]


def _global_pooling(call: Call) -> list[Labelled]:
    rank = call.input.rank
    axis = channel_axis(call.operation, rank)
    return _reduced(call, [one for one in range(rank) if one != axis])


def _reduction(call: Call) -> list[Labelled]:
    given: Any = call.operation.axis
    axes = given if isinstance(given, (list, tuple)) else [given]
    if given is None:
        raise UnsupportedUse(f"{call} mixes examples")
    return _reduced(call, [without_batch(axis, call.input.rank, call) for axis in axes])


def _pad(call: Call) -> list[Labelled]:
    tensor = call.inputs[0]
    changed = [one for one, size in enumerate(tensor.shape) if call.output[one] != size]
    merged = call.channels.merged(tensor, changed, f"{call} adds to its channels")
    return [Labelled(merged.labels, call.output)]


def _of_sizes(*names: str) -> list[type]:
    found = [getattr(_layers, f"{name}{size}D", None) for name in names for size in (1, 2, 3)]
    return [one for one in found if one is not None]


RULES: dict[type, Rule] = {
    _layers.Reshape: _reshape,
    numpy.Reshape: _reshape,
    _layers.Flatten: _flatten,
    _layers.Permute: _permute,
    **dict.fromkeys((numpy.Transpose, numpy.Swapaxes, numpy.Moveaxis), _transpose),
    **dict.fromkeys((_layers.Concatenate, numpy.Concatenate), _concatenate),
    numpy.Stack: _stack,
    **dict.fromkeys((numpy.ExpandDims, numpy.Squeeze), _new_shape),
    _layers.RepeatVector: _repeat_vector,
    numpy.GetItem: _get_item,
    numpy.Split: _split,
    **dict.fromkeys(
        (
            *_of_sizes("MaxPooling", "AveragePooling", "ZeroPadding", "Cropping", "UpSampling"),
            *_of_sizes("AdaptiveMaxPooling", "AdaptiveAveragePooling"),
            nn.MaxPool,
            nn.AveragePool,
        ),
        _local,
    ),
    **dict.fromkeys(_of_sizes("GlobalAveragePooling", "GlobalMaxPooling"), _global_pooling),
    **dict.fromkeys(
        (numpy.Mean, numpy.Sum, numpy.Max, numpy.Min, numpy.Var, numpy.Std), _reduction
    ),
    numpy.Pad: _pad,
}
