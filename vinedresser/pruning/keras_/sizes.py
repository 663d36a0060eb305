"""Settings of layers and operations that name sizes, after a removal."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import keras
import numpy as np
from keras.src.ops import numpy

from vinedresser.pruning.group import Indices
from vinedresser.pruning.keras_.removal import Removal

__all__ = ["changed_config", "changed_key"]

_layers = keras.layers
# The setting, and the weight and its axis that have this size.
_MAKERS: dict[type, tuple[str, str, int]] = {
    **dict.fromkeys((_layers.Conv1D, _layers.Conv2D, _layers.Conv3D), ("filters", "kernel", -1)),
    **dict.fromkeys(
        (_layers.Conv1DTranspose, _layers.Conv2DTranspose, _layers.Conv3DTranspose),
        ("filters", "kernel", -2),
    ),
    **dict.fromkeys(
        (_layers.SeparableConv1D, _layers.SeparableConv2D), ("filters", "pointwise_kernel", -1)
    ),
    _layers.Dense: ("units", "kernel", -1),
    _layers.Embedding: ("output_dim", "embeddings", -1),
}
# The setting, and whether it counts the batch axis.
_RESHAPES = {_layers.Reshape: ("target_shape", 0), numpy.Reshape: ("newshape", 1)}


def changed_config(removal: Removal, node: Any) -> dict[str, Any]:
    """Return the settings of a layer or operation that a removal changes.

    Args:
        removal: what is removed.
        node: the node that calls it first.
    """
    operation = node.operation
    kind = type(operation)
    if kind in _MAKERS:
        return _of_maker(removal, operation, *_MAKERS[kind])
    if kind is numpy.Split:
        return _of_split(removal, node)
    outputs = removal.trace.outputs[id(node)]
    found = removal.positions(outputs[0]) if outputs else None
    if found is None:
        return {}
    axis, gone = found
    if kind is _layers.GroupNormalization and operation.groups == outputs[0].shape[axis]:
        return {"groups": operation.groups - len(gone)}
    if kind in _RESHAPES:
        setting, batch = _RESHAPES[kind]
        return {setting: _without(getattr(operation, setting), axis + batch, gone)}
    return {}


def _of_maker(removal: Removal, layer: Any, setting: str, weight: str, axis: int) -> dict[str, Any]:
    variable = getattr(layer, weight)
    name = removal.trace.variables[id(variable)]
    gone = removal.tensors.get(name, {}).get(axis + len(variable.shape), [])
    if not gone:
        return {}
    size = variable.shape[axis] - len(gone)
    groups = getattr(layer, "groups", 1)
    if groups > 1 and variable.shape[-2] == 1:
        # Every group reads one channel and goes with it.
        return {setting: size, "groups": size * groups // layer.filters}
    return {setting: size}


def _of_split(removal: Removal, node: Any) -> dict[str, Any]:
    outputs = removal.trace.outputs[id(node)]
    rank = outputs[0].rank + 1
    axis = node.operation.axis % rank - 1
    sizes = [removal.shape(output)[axis] for output in outputs]
    return {"indices_or_sections": tuple(np.cumsum(sizes)[:-1].tolist())}


def _without(shape: Sequence[int], axis: int, gone: Indices) -> tuple[int, ...]:
    sizes = list(shape)
    if sizes[axis] != -1:
        sizes[axis] -= len(gone)
    return tuple(sizes)


def changed_key(removal: Removal, node: Any, args: tuple[Any, ...]) -> tuple[Any, ...]:
    """Return the arguments of an item access after a removal: other bounds and indices.

    Args:
        removal: what is removed.
        node: the node of the access.
        args: its positional arguments: the tensor and the key.
    """
    (tensor,) = removal.trace.arguments[id(node)]
    found = removal.positions(tensor)
    if found is None:
        return args
    axis, gone = found
    kept = np.ones(tensor.shape[axis], bool)
    kept[gone] = False
    # Position of each element among those that remain; one more for the end.
    places = np.concatenate([[0], np.cumsum(kept)])
    key = args[1] if isinstance(args[1], (tuple, list)) else (args[1],)
    changed = list(_expanded(key, tensor.rank + 1))
    places_of_axes = [number for number, one in enumerate(changed) if one is not None]
    place = places_of_axes[axis + 1]
    changed[place] = _moved(changed[place], len(kept), places)
    return (args[0], tuple(changed))


def _expanded(key: Sequence[Any], rank: int) -> list[Any]:
    """Return a key with one entry per axis, besides None for new axes."""
    count = sum(one is not None and one is not Ellipsis for one in key)
    missing = [slice(None)] * (rank - count)
    if Ellipsis not in key:
        return [*key, *missing]
    place = list(key).index(Ellipsis)
    return [*key[:place], *missing, *key[place + 1 :]]


def _moved(entry: Any, size: int, places: Indices) -> Any:
    if isinstance(entry, int):
        return int(places[entry % size])
    start, stop, _ = entry.indices(size)
    return slice(int(places[start]), int(places[max(start, stop)]))
