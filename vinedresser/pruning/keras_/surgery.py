"""Building a model anew without the channels of a plan."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import keras
import numpy as np
from keras import tree
from keras.src.models.functional import functional_like_constructor
from keras.src.ops import numpy

from vinedresser.errors import PruningError
from vinedresser.frameworks.keras_.names import Names
from vinedresser.pruning.group import Indices
from vinedresser.pruning.keras_.graph import (
    functional_of,
    graph_nodes,
    graph_of,
    run_graph,
    values_of,
)
from vinedresser.pruning.keras_.removal import Removal
from vinedresser.pruning.keras_.user_code import user_code
from vinedresser.pruning.keras_.variants import in_precision

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


def rebuild(model: Any, removal: Removal, dtype: str | None = None) -> Any:
    """Return a new model without channels; layers that are shared stay shared.

    Args:
        model: the model; it is not changed.
        removal: what to remove.
        dtype: the precision of all its layers, "float32" or "float64"; None: as they are.

    Raises:
        PruningError: a layer cannot be built anew from its configuration.
    """
    builder = _Builder(removal, dtype)
    with keras.utils.custom_object_scope(_own_objects(model)):
        built = builder.model(model)
    _copy_variables(model, built, removal)
    _copy_trainable(model, built)
    return built


class _Builder:
    def __init__(self, removal: Removal, dtype: str | None) -> None:
        self._removal = removal
        self._dtype = dtype
        # By id of the original: a layer that is called twice is built once.
        self._built: dict[int, Any] = {}

    def model(self, model: Any) -> Any:
        """Return a new model for a Functional or Sequential one."""
        if id(model) not in self._built:
            build = self._sequential if isinstance(model, keras.Sequential) else self._functional
            self._built[id(model)] = build(model)
        return self._built[id(model)]

    def _functional(self, model: Any) -> Any:
        inputs = self._inputs(model)
        outputs = run_graph(model, inputs, self._visit)
        packed = tree.pack_sequence_as(model.input, inputs)
        # A class with a constructor of its own cannot be built from a graph.
        own = functional_like_constructor(type(model))
        build = type(model) if own else keras.Model
        return build(packed, outputs, name=model.name)

    def _sequential(self, model: Any) -> Any:
        graph = graph_of(model)
        nodes = graph_nodes(graph)
        built = [self._operation(node) for node in nodes]
        return type(model)([*self._inputs(graph), *built], name=model.name)

    def _inputs(self, graph: Any) -> list[Any]:
        found = []
        for tensor, one in zip(graph.inputs, self._removal.trace.inputs[id(graph)], strict=True):
            layer = tensor._keras_history.operation
            position = self._removal.positions(one)
            shape = list(tensor.shape)
            if position is not None:
                shape[position[0] + 1] -= len(position[1])
            sparse = bool(tensor.sparse)
            optional = bool(getattr(layer, "optional", False))
            found.append(
                keras.Input(
                    batch_shape=tuple(shape),
                    dtype=self._input_dtype(tensor),
                    sparse=sparse,
                    name=layer.name,
                    optional=optional,
                )
            )
        return found

    def _input_dtype(self, tensor: Any) -> str:
        changes = self._dtype is not None and "float" in tensor.dtype
        return str(self._dtype if changes else tensor.dtype)

    def _visit(self, node: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        operation = self._operation(node)
        if isinstance(node.operation, numpy.GetItem):
            args = _changed_key(self._removal, node, args)
        with user_code(_failure(node.operation)):
            return operation(*args, **kwargs)

    def _operation(self, node: Any) -> Any:
        """Return the new layer, model or operation for that of a node."""
        original = node.operation
        if functional_of(original) is not None:
            return self.model(original)
        if id(original) not in self._built:
            self._built[id(original)] = self._new(node)
        return self._built[id(original)]

    def _new(self, node: Any) -> Any:
        original = node.operation
        with user_code(_failure(original)):
            config = original.get_config()
            config.update(_changed_config(self._removal, node))
            if self._dtype is not None:
                config = in_precision(config, self._dtype)
            if type(original) is keras.layers.Lambda:
                return _lambda(original, config)
            return type(original).from_config(config)


def _failure(operation: Any) -> str:
    kind = type(operation).__name__
    return f"{operation.name} ({kind}) cannot be built anew from its get_config()"


def _lambda(original: Any, config: dict[str, Any]) -> Any:
    """Return a new Lambda layer with the same function, not one made of the function's text."""
    functions = {
        "function": original.function,
        "output_shape": original._output_shape,
        "mask": original.mask,
    }
    return keras.layers.Lambda(**{**config, **functions})


def _own_objects(model: Any) -> dict[str, Any]:
    """Return what a model's layers are made of and Keras does not know, by name."""
    found: dict[str, Any] = {}
    for layer in model._flatten_layers():
        found[type(layer).__name__] = type(layer)
        for one in vars(layer).values():
            kind = one if callable(one) and hasattr(one, "__name__") else type(one)
            if not str(getattr(kind, "__module__", "keras")).startswith(("keras.", "builtins")):
                found[str(getattr(kind, "__name__", ""))] = kind
    return {
        name: one
        for name, one in found.items()
        if name and not str(one.__module__).startswith("keras.")
    }


def _copy_variables(model: Any, built: Any, removal: Removal) -> None:
    new = {one.path: one.value for one in Names(built).variables()}
    for old in Names(model).variables():
        values = values_of(old.value)
        for axis, gone in removal.tensors.get(old.path, {}).items():
            values = np.delete(values, gone, axis)
        if old.path not in new:
            raise PruningError(f"{old.path}: the model built anew has no such variable")
        variable = new.pop(old.path)
        if tuple(variable.shape) != values.shape:
            raise PruningError(
                f"{old.path}: the model built anew has shape {list(variable.shape)} instead of "
                f"{list(values.shape)}"
            )
        variable.assign(keras.ops.convert_to_tensor(values, dtype=variable.dtype))
    if new:
        raise PruningError(f"{next(iter(new))}: only the model built anew has this variable")


def _copy_trainable(model: Any, built: Any) -> None:
    """Copy which layers are trained, from the outside inwards: a model sets its layers' flags."""
    for old, new in _pairs(model, built):
        if new.trainable != old.trainable:
            new.trainable = old.trainable


def _pairs(model: Any, built: Any) -> Iterator[tuple[Any, Any]]:
    new = dict(Names(built).layers()[1:])
    yield model, built
    for path, layer in Names(model).layers()[1:]:
        if path in new:
            yield layer, new[path]


def _changed_config(removal: Removal, node: Any) -> dict[str, Any]:
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


def _changed_key(removal: Removal, node: Any, args: tuple[Any, ...]) -> tuple[Any, ...]:
    """Return the arguments of an item access after a removal: other bounds and indices.

    Args:
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
