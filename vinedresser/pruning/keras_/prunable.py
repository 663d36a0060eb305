"""Filter pruning of Keras models."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import Any

import keras
import numpy as np
from keras import tree
from numpy.typing import NDArray

from vinedresser.errors import PruningError
from vinedresser.frameworks.keras_.double_precision import double_precision
from vinedresser.frameworks.keras_.names import Names
from vinedresser.pruning.group import Group, Indices
from vinedresser.pruning.keras_.channels import Labelled
from vinedresser.pruning.keras_.checks import checked_inputs, checked_model
from vinedresser.pruning.keras_.graph import (
    call_eagerly,
    converted,
    flat_inputs,
    functional_of,
    graph_of,
    run_graph,
    values_of,
)
from vinedresser.pruning.keras_.grouping import group_channels
from vinedresser.pruning.keras_.removal import Removal, removal
from vinedresser.pruning.keras_.surgery import rebuild
from vinedresser.pruning.keras_.tracing import trace
from vinedresser.pruning.keras_.user_code import user_code
from vinedresser.pruning.keras_.variants import redraw
from vinedresser.pruning.plan import Plan
from vinedresser.pruning.proof import global_generators_kept
from vinedresser.pruning.prunable import Outputs, Variant

_OVER_CHANNELS = (
    keras.layers.LayerNormalization,
    keras.layers.RMSNormalization,
    keras.layers.GroupNormalization,
)


class KerasPrunable:
    """A Functional or Sequential model of Keras 3; see `Prunable`.

    Names of tensors are those of captured ones, without the kind ("conv2d.kernel").

    Args:
        model: the model, built; it is not changed.
        example: float or int, an array [batch, ...], or for several inputs a list, or a dictionary
            by the inputs' names.

    Raises:
        PruningError: the model is not Functional or Sequential, is not built, or does not run on
            the example.
    """

    def __init__(self, model: Any, example: Any) -> None:
        self.model = checked_model(model)
        self._inputs = checked_inputs(model, example)
        found = Names(model).variables()
        self._variables = {one.path: one.value for one in found}
        self._parameters = frozenset(one.path for one in found if one.kind != "buffers")
        names = {id(one.value): one.path for one in found}
        self._trace = trace(model, self._inputs, names)
        self._grouped = group_channels(self._trace)

    @property
    def groups(self) -> tuple[Group, ...]:
        """See `Prunable.groups`."""
        return self._grouped.groups

    @property
    def parameters(self) -> frozenset[str]:
        """See `Prunable.parameters`."""
        return self._parameters

    @property
    def uses(self) -> Mapping[str, int]:
        """See `Prunable.uses`."""
        return dict(self._trace.uses)

    @property
    def item_sizes(self) -> Mapping[str, int]:
        """See `Prunable.item_sizes`."""
        # The arrays of the host have the dtypes of the variables.
        return {name: one.dtype.itemsize for name, one in self.tensors().items()}

    @cached_property
    def notes(self) -> tuple[str, ...]:
        """See `Prunable.notes`."""
        try:
            self._shapes_in_training(self.model)
        except PruningError as error:
            return (f"only evaluation mode was checked: {error}",)
        return ()

    def tensors(self) -> dict[str, NDArray[Any]]:
        """See `Prunable.tensors`."""
        return {name: values_of(variable) for name, variable in self._variables.items()}

    def attributes(self, channels: Mapping[str, tuple[int, ...]]) -> dict[str, int]:
        """See `Prunable.attributes`."""
        groups = {group.name: group for group in self.groups}
        found: dict[str, int] = {}
        for path, layer in self._trace.own_filters.items():
            kernel = self._trace.variables[id(layer.kernel)]
            gone = sum(
                member.indices[list(numbers)].size
                for name, numbers in channels.items()
                for member in groups[name].members
                if member.tensor == kernel
            )
            if gone:
                found[f"{path}.groups"] = layer.groups - gone * layer.groups // layer.filters
        return found

    def removed(self, plan: Plan) -> Any:
        """See `Prunable.removed`; the new model is not compiled."""
        return rebuild(self.model, self._removal(plan))

    def outputs(self, model: Any) -> Outputs:
        """See `Prunable.outputs`; of training mode, which draws random numbers, the shapes."""
        packed = tree.pack_sequence_as(graph_of(model).input, self._inputs)
        found = _arrays(model(packed, training=False))
        return found if self.notes else found + self._shapes_in_training(model)

    def _shapes_in_training(self, model: Any) -> Outputs:
        """Return the shapes of a model's outputs in training mode; the model stays as it is.

        Layers with a rule compute the same from the same channels in both modes, and what flows
        into other layers is locked.

        Raises:
            PruningError: the model does not run.
        """
        packed = tree.pack_sequence_as(graph_of(model).input, self._inputs)
        with (
            user_code(f"{model.name}: the model does not run in training mode"),
            global_generators_kept(),
            keras.StatelessScope(),
        ):
            outputs = tree.flatten(model(packed, training=True))
            return [np.array(output.shape) for output in outputs]

    def compared(self, plan: Plan, variant: Variant) -> tuple[Outputs, Outputs]:
        """See `Prunable.compared`.

        Raises:
            PruningError: also if the model cannot be computed in this precision.
        """
        if variant == "float32":
            return (self if self._is_float32() else self._copy("float32"))._compared(plan)
        with double_precision():
            other = self._copy("float64")
            if variant == "redrawn":
                redraw(other._variables, seed=0)
            return other._compared(plan)

    def _compared(self, plan: Plan) -> tuple[Outputs, Outputs]:
        gone = self._removal(plan)
        weights = _masked_weights(self._variables, gone, self.groups)
        masked = _arrays(_run_masked(self.model, self._inputs, gone, weights))
        if not self.notes:
            masked += self._shapes_in_training(self.model)
        return masked, self.outputs(self.removed(plan))

    def _is_float32(self) -> bool:
        layers = self.model._flatten_layers()
        policies = [layer.dtype_policy for layer in layers if functional_of(layer) is None]
        return all(
            policy.compute_dtype == policy.variable_dtype == "float32" for policy in policies
        )

    def _copy(self, dtype: str) -> KerasPrunable:
        """Return an equal model in a precision."""
        copy = rebuild(self.model, Removal.of_nothing(self._trace), dtype)
        return KerasPrunable(copy, [keras.ops.convert_to_numpy(one) for one in self._inputs])

    def _removal(self, plan: Plan) -> Removal:
        shapes = {name: tuple(one.shape) for name, one in self._variables.items()}
        return removal(self._trace, self._grouped, plan, shapes)


def _arrays(outputs: Any) -> Outputs:
    return [keras.ops.convert_to_numpy(one) for one in tree.flatten(outputs)]


def _masked_weights(
    variables: Mapping[str, Any], removal: Removal, groups: Sequence[Group]
) -> list[tuple[Any, Any]]:
    """Return the weights that read removed channels, and their values with zeros there.

    Args:
        variables: the model's variables by name.
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


def _run_masked(
    model: Any, inputs: Sequence[Any], removal: Removal, weights: list[tuple[Any, Any]]
) -> Any:
    """Return the outputs of a model in which nothing reads the removed channels.

    All weights keep their shapes; normalisations take their statistics over the other channels.

    Args:
        model: the unpruned model; it is not changed.
        weights: what `_masked_weights` returned.
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
