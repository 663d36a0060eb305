"""Running the graph of a Functional or Sequential model, node by node."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import keras
import numpy as np
from keras import tree
from keras.src.models.functional import Functional, operation_fn
from numpy.typing import NDArray

from vinedresser.frameworks.keras_.names import Names

__all__ = [
    "call_eagerly",
    "converted",
    "flat_inputs",
    "functional_of",
    "graph_nodes",
    "graph_of",
    "layer_paths",
    "run_graph",
    "values_of",
]

_Visit = Callable[[Any, tuple[Any, ...], dict[str, Any]], Any]


def functional_of(layer: Any) -> Any | None:
    """Return the graph of a model; None for a layer, and for a model with code of its own."""
    kind = type(layer)
    if isinstance(layer, keras.Sequential):
        return layer._functional if kind.call is keras.Sequential.call else None
    if isinstance(layer, Functional):
        return layer if kind.call is Functional.call else None
    return None


def graph_of(model: Any) -> Any:
    """Return the graph of a Functional or built Sequential model; see `functional_of`."""
    graph = functional_of(model)
    assert graph is not None
    return graph


def graph_nodes(graph: Any) -> list[Any]:
    """Return the nodes of a graph in the order in which it runs them, without its inputs."""
    depths = sorted(graph._nodes_by_depth, reverse=True)
    nodes = [node for depth in depths for node in graph._nodes_by_depth[depth]]
    return [node for node in nodes if node.operation and not node.is_input]


def run_graph(graph: Any, inputs: Sequence[Any], visit: _Visit) -> Any:
    """Run a graph on values of any type.

    Args:
        graph: what `functional_of` returned.
        visit: called with each node and its arguments, in which values stand for symbolic tensors;
            returns the value of its output, or a structure of several.

    Returns:
        The values of the outputs, in the structure that the model returns.
    """
    values = {id(tensor): value for tensor, value in zip(graph.inputs, inputs, strict=True)}

    def value(one: Any) -> Any:
        return values[id(one)] if isinstance(one, keras.KerasTensor) else one

    for node in graph_nodes(graph):
        args, kwargs = node.arguments.convert(value)
        outputs = visit(node, args, kwargs)
        for tensor, found in zip(node.outputs, tree.flatten(outputs), strict=True):
            values[id(tensor)] = found
    return tree.map_structure(value, graph.output)


def flat_inputs(graph: Any, given: Any) -> list[Any]:
    """Return what a graph is called with as one value per input.

    Args:
        graph: what `functional_of` returned.
        given: the argument of its call: a value, or a list or dictionary of values.
    """
    if isinstance(given, dict) and not isinstance(graph.input, dict):
        return [given[tensor.name] for tensor in graph.inputs]
    return list(tree.flatten(given))


def converted(graph: Any, values: list[Any]) -> list[Any]:
    """Return tensors as a graph converts its inputs: of its own dtypes and ranks."""
    return list(graph._standardize_inputs(tree.pack_sequence_as(graph.input, values)))


def call_eagerly(operation: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Call an operation in evaluation mode."""
    return operation_fn(operation, training=False)(*args, **kwargs)


def layer_paths(model: Any) -> dict[int, str]:
    """Return the path of each layer by its id, as in names of captured tensors."""
    return {id(layer): path for path, layer in Names(model).layers()}


def values_of(variable: Any) -> NDArray[Any]:
    """Return the values of a variable as an array of the host."""
    # The generic conversion warns about TensorFlow's variables.
    if keras.backend.backend() == "tensorflow":
        return np.asarray(variable.numpy())
    return np.asarray(keras.ops.convert_to_numpy(variable.value))
