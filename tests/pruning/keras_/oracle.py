"""What a network computes if nothing reads the removed filters, found by making their weights NaN.

It knows nothing of labels or shapes: whatever becomes NaN with the weights of a removed filter is
what the filter makes, and is set to zero wherever a weight reads it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from tests.pruning.keras_.zoo import keras
from vinedresser.pruning.keras_.graph import run_graph

__all__ = ["masked_by_nan"]

layers = keras.layers
_READERS = (
    layers.Dense, layers.Conv1D, layers.Conv2D, layers.Conv2DTranspose, layers.SeparableConv2D,
)  # fmt: skip
_NORMS = (layers.LayerNormalization, layers.RMSNormalization, layers.GroupNormalization)
Pair = tuple[Any, Any]


def masked_by_nan(
    model: Any, inputs: list[Any], filters: Mapping[int, list[tuple[int, list[int]]]]
) -> list[Any]:
    """Return the outputs of a model in which nothing reads some filters.

    Args:
        model: a Functional model.
        inputs: one array per input.
        filters: by id of a variable: axes and the indices on them that belong to the filters, in
            what makes them, not in what reads them.

    Raises:
        AssertionError: an output depends on the filters.
    """
    changed = []
    for variable in model.weights:
        values = np.array(_array(variable + 0))
        for axis, indices in filters.get(id(variable), []):
            np.moveaxis(values, axis, 0)[indices] = np.nan
        changed.append((variable, keras.ops.convert_to_tensor(values)))

    def visit(node: Any, args: Any, kwargs: Any) -> Any:
        operation = node.operation
        if hasattr(operation, "_nodes_by_depth"):
            return run_graph(operation, keras.tree.flatten(args[0]), visit)
        if isinstance(operation, _NORMS):
            return _normalised(operation, args[0], changed)
        if isinstance(operation, _READERS) and not _is_depthwise(operation):
            args = (_masked(*args[0]), *args[1:])
        return _both(operation, args, kwargs, changed)

    pairs = [(keras.ops.convert_to_tensor(one),) * 2 for one in inputs]
    outputs = keras.tree.flatten(run_graph(model, [_Pair(*pair) for pair in pairs], visit))
    for output in outputs:
        assert np.array_equal(_array(output.original), _array(output.changed)), (
            "an output depends on it"
        )
    return [_array(output.original) for output in outputs]


class _Pair:
    """A value with the original weights and with the changed ones."""

    def __init__(self, original: Any, changed: Any) -> None:
        self.original = original
        self.changed = changed

    def __iter__(self) -> Any:
        return iter((self.original, self.changed))


def _array(tensor: Any) -> Any:
    return np.asarray(keras.ops.convert_to_numpy(tensor))


def _is_depthwise(layer: Any) -> bool:
    return getattr(layer, "groups", 1) > 1 and layer.kernel.shape[-2] == 1


def _differs(pair: Any) -> Any:
    """Return bool [1, ...]: what differs in any example."""
    one, other = map(_array, pair)
    return (one != other).any(axis=0, keepdims=True)


def _masked(original: Any, changed: Any) -> _Pair:
    differs = _differs((original, changed))
    if differs.all(axis=-1).any() and not differs.all():
        # Whole rows: the layer computes what belongs to a removed filter itself.
        return _Pair(original, changed)
    arrays = [np.where(differs, 0, _array(one)) for one in (original, changed)]
    return _Pair(*(keras.ops.convert_to_tensor(array) for array in arrays))


def _both(operation: Any, args: Any, kwargs: Any, changed: Any) -> Any:
    def pick(which: str) -> Any:
        return keras.tree.map_structure(
            lambda one: getattr(one, which) if isinstance(one, _Pair) else one, (args, kwargs)
        )

    def call(which: str) -> Any:
        picked_args, picked_kwargs = pick(which)
        if "training" in getattr(operation, "_call_context_args", ()):
            picked_kwargs = {**picked_kwargs, "training": False}
        return operation(*picked_args, **picked_kwargs)

    first = call("original")
    with keras.StatelessScope(state_mapping=changed):
        second = call("changed")
    return keras.tree.map_structure(_Pair, first, second)


def _normalised(layer: Any, pair: Any, changed: Any) -> Any:
    """Normalise with the statistics of what does not differ."""
    differs = _differs(pair)
    if not differs.any():
        return _both(layer, (pair,), {}, changed)
    results = []
    for one in pair:
        values = np.ma.masked_array(_array(one), np.broadcast_to(differs, one.shape))
        if isinstance(layer, layers.GroupNormalization):
            axis = layer.axis % values.ndim
            assert axis == values.ndim - 1
            parts = np.ma.stack(np.split(values, layer.groups, axis=axis))
            axes: Any = tuple(range(2, parts.ndim))
            mean, variance = parts.mean(axes, keepdims=True), parts.var(axes, keepdims=True)
            whole = (parts.data - mean.data) / np.sqrt(variance.data + layer.epsilon)
            result = np.concatenate(list(whole), axis=axis)
        else:
            axes = tuple(layer.axis) if isinstance(layer.axis, (list, tuple)) else layer.axis
            if isinstance(layer, layers.RMSNormalization):
                mean, variance = 0.0, (values**2).mean(axes, keepdims=True).data
            else:
                mean = values.mean(axes, keepdims=True).data
                variance = values.var(axes, keepdims=True).data
            result = (values.data - mean) / np.sqrt(variance + layer.epsilon)
        for name, combine in (("gamma", np.multiply), ("scale", np.multiply), ("beta", np.add)):
            weight: Any = getattr(layer, name, None)
            if hasattr(weight, "shape"):
                # These tests normalise over the last axis only.
                result = combine(result, _array(weight + 0))
        # What is masked stays what it is: it is not read.
        result = np.where(differs, _array(one), result)
        results.append(keras.ops.convert_to_tensor(result.astype(_array(one).dtype)))
    return _Pair(*results)
