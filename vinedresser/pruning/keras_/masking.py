"""Running an unpruned model as if nothing read a plan's channels."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import keras
import numpy as np

from vinedresser.pruning.group import Group, Indices
from vinedresser.pruning.keras_.channels import Labelled
from vinedresser.pruning.keras_.graph import (
    call_eagerly,
    converted,
    flat_inputs,
    functional_of,
    graph_of,
    run_graph,
    values_of,
)
from vinedresser.pruning.keras_.removal import Removal

__all__ = ["masked_weights", "run_masked"]

_OVER_CHANNELS = (
    keras.layers.LayerNormalization,
    keras.layers.RMSNormalization,
    keras.layers.GroupNormalization,
)


def masked_weights(
    variables: Mapping[str, Any], removal: Removal, groups: Sequence[Group]
) -> list[tuple[Any, Any]]:
    """Return the weights that read removed channels, and their values with zeros there.

    Args:
        variables: the model's variables by name.
        removal: what a plan removes.
    """
    readers: dict[str, set[int]] = {}
    for group in groups:
        for member in group.of_role("input"):
            readers.setdefault(member.tensor, set()).add(member.axis)
    found = []
    for name, axes in readers.items():
        values = np.array(values_of(variables[name]))
        for axis in axes:
            np.moveaxis(values, axis, 0)[removal.tensors.get(name, {}).get(axis, [])] = 0
        found.append((variables[name], keras.ops.convert_to_tensor(values)))
    return found


def run_masked(
    model: Any, inputs: Sequence[Any], removal: Removal, weights: list[tuple[Any, Any]]
) -> Any:
    """Return the outputs of a model in which nothing reads the removed channels.

    All weights keep their shapes; normalisations take their statistics over the other channels.

    Args:
        model: the unpruned model; it is not changed.
        inputs: one tensor per input.
        removal: what a plan removes.
        weights: what `masked_weights` returned.
    """

    def visit(node: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        graph = functional_of(node.operation)
        if graph is not None:
            given = flat_inputs(graph, args[0] if args else kwargs["inputs"])
            return run_graph(graph, converted(graph, given), visit)
        if isinstance(node.operation, _OVER_CHANNELS):
            (labels,) = removal.trace.arguments[id(node)]
            if removal.mask(labels).any():
                return _normalised(node.operation, args[0], labels, removal.mask(labels))
        return call_eagerly(node.operation, args, kwargs)

    with keras.StatelessScope(state_mapping=weights):
        return run_graph(graph_of(model), inputs, visit)


def _normalised(layer: Any, tensor: Any, labels: Labelled, gone: Indices) -> Any:
    """Return a normalisation with statistics of what is not gone, computed in float64."""
    values = keras.ops.convert_to_numpy(tensor).astype(np.float64)
    kept = np.broadcast_to(~gone, labels.shape)[None]
    axes, folded = _statistics_axes(layer, values.ndim)
    shape = values.shape
    if folded is not None:
        # The groups' axis comes before that of their channels.
        parts = (layer.groups, shape[folded] // layer.groups)
        values = values.reshape(*shape[:folded], *parts, *shape[folded + 1 :])
        kept = kept.reshape(1, *shape[1:folded], *parts, *shape[folded + 1 :])
    kept = np.broadcast_to(kept, values.shape)
    # A group of which nothing is left is not read either.
    count = np.maximum(kept.sum(axes, keepdims=True), 1)
    mean = 0.0
    if not isinstance(layer, keras.layers.RMSNormalization):
        mean = (values * kept).sum(axes, keepdims=True) / count
    centred = (values - mean) * kept
    variance = np.square(centred).sum(axes, keepdims=True) / count
    result = (centred / np.sqrt(variance + layer.epsilon)).reshape(shape)
    result = _scaled(layer, result)
    return keras.ops.convert_to_tensor(result.astype(layer.compute_dtype))


def _statistics_axes(layer: Any, rank: int) -> tuple[tuple[int, ...], int | None]:
    """Return the axes of the statistics and the axis that is folded into groups, if any."""
    if isinstance(layer, keras.layers.GroupNormalization):
        folded = layer.axis % rank
        return tuple(one for one in range(1, rank + 1) if one != folded), folded
    given = layer.axis if isinstance(layer.axis, (list, tuple)) else [layer.axis]
    return tuple(one % rank for one in given), None


def _scaled(layer: Any, values: Any) -> Any:
    if isinstance(layer, keras.layers.RMSNormalization):
        scale, shift = layer.scale, None
    else:
        scale, shift = layer.gamma, layer.beta
    given = layer.axis if isinstance(layer.axis, (list, tuple)) else [layer.axis]
    axes = [one % values.ndim for one in given]
    sizes = [size if axis in axes else 1 for axis, size in enumerate(values.shape)]
    if scale is not None:
        values = values * values_of(scale).reshape(sizes)
    if shift is not None:
        values = values + values_of(shift).reshape(sizes)
    return values
