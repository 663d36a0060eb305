"""Filter pruning of Keras models."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property
from typing import Any

import keras
import numpy as np
from keras import tree
from numpy.typing import NDArray

from vinedresser.errors import PruningError
from vinedresser.frameworks.keras_.double_precision import double_precision
from vinedresser.frameworks.keras_.names import Names
from vinedresser.pruning.group import Group
from vinedresser.pruning.keras_.checks import checked_inputs, checked_model
from vinedresser.pruning.keras_.graph import functional_of, graph_of, values_of
from vinedresser.pruning.keras_.grouping import group_channels
from vinedresser.pruning.keras_.masking import masked_weights, run_masked
from vinedresser.pruning.keras_.removal import Removal, removal
from vinedresser.pruning.keras_.surgery import rebuild
from vinedresser.pruning.keras_.tracing import trace
from vinedresser.pruning.keras_.user_code import user_code
from vinedresser.pruning.keras_.variants import redraw
from vinedresser.pruning.plan import Plan
from vinedresser.pruning.proof import global_generators_kept
from vinedresser.pruning.prunable import Outputs, Variant

__all__ = ["KerasPrunable"]


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
        weights = masked_weights(self._variables, gone, self.groups)
        masked = _arrays(run_masked(self.model, self._inputs, gone, weights))
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
