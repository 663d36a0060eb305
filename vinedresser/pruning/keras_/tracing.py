"""Following channels through a model: labels of every tensor in its graph."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from keras import tree

from vinedresser.pruning.keras_.channels import Channels, Labelled, UnsupportedUse
from vinedresser.pruning.keras_.graph import (
    call_eagerly,
    converted,
    flat_inputs,
    functional_of,
    graph_of,
    layer_paths,
    run_graph,
)
from vinedresser.pruning.keras_.rules.call import Call, unlabelled
from vinedresser.pruning.keras_.rules.registry import RULES
from vinedresser.pruning.keras_.user_code import user_code

__all__ = ["Trace", "trace"]


@dataclass(frozen=True, eq=False)
class _Flowing:
    """A tensor with its labels."""

    value: Any
    labelled: Labelled


@dataclass(eq=False)
class Trace:
    """What is known of a model's channels.

    Attributes:
        channels: the labels.
        inputs: labels of the inputs of each graph, by its id, in its first call.
        arguments: labels of the tensors that a node gets, by its id, in its first call.
        outputs: labels of a node's outputs, likewise.
        tensors: labels of all tensors.
        uses: how often each element of a weight is multiplied for one example.
        own_filters: grouped convolutions in which each group reads one channel, by path.
        first_inputs: labels of the tensors of a layer's first call, by the layer's id.
        variables: name of each variable by its id.
    """

    variables: dict[int, str]

    channels: Channels = field(default_factory=Channels)
    inputs: dict[int, list[Labelled]] = field(default_factory=dict)
    arguments: dict[int, list[Labelled]] = field(default_factory=dict)
    outputs: dict[int, list[Labelled]] = field(default_factory=dict)
    tensors: list[Labelled] = field(default_factory=list)
    uses: dict[str, int] = field(default_factory=dict)
    own_filters: dict[str, Any] = field(default_factory=dict)
    first_inputs: dict[int, list[Labelled]] = field(default_factory=dict)


def trace(model: Any, inputs: Sequence[Any], variables: dict[int, str]) -> Trace:
    """Run a model on an example and follow its channels.

    Args:
        model: a built Functional or Sequential model.
        inputs: one tensor per input.
        variables: name of each variable by its id.

    Raises:
        PruningError: the model does not run on the example.
    """
    tracer = _Tracer(model, variables)
    flowing = [_Flowing(one, unlabelled(tuple(one.shape[1:]))) for one in inputs]
    outputs = tracer.run(graph_of(model), flowing)
    for one in tree.flatten(outputs):
        tracer.trace.channels.lock_outputs(one.labelled.labels)
    tracer.trace.channels.make_rectangular(tracer.trace.tensors)
    return tracer.trace


class _Tracer:
    def __init__(self, model: Any, variables: dict[int, str]) -> None:
        self.trace = Trace(variables)
        self._paths = layer_paths(model)

    def run(self, graph: Any, inputs: Sequence[_Flowing]) -> Any:
        """Run a graph; see `run_graph`."""
        found = [one.labelled for one in inputs]
        self.trace.tensors += found
        self.trace.inputs.setdefault(id(graph), found)
        return run_graph(graph, inputs, self._visit)

    def _visit(self, node: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        operation = node.operation
        graph = functional_of(operation)
        flowing = [one for one in tree.flatten((args, kwargs)) if isinstance(one, _Flowing)]
        self.trace.arguments.setdefault(id(node), [one.labelled for one in flowing])
        self._tie_calls(operation, [one.labelled for one in flowing])
        if graph is not None:
            given = flat_inputs(graph, args[0] if args else kwargs["inputs"])
            return self.run(graph, self._as_inputs(graph, given))
        return self._call(node, args, kwargs)

    def _tie_calls(self, operation: Any, found: list[Labelled]) -> None:
        """Unite the inputs of all calls of one layer: it loses the same channels in all."""
        first = self.trace.first_inputs.setdefault(id(operation), found)
        channels, name = self.trace.channels, self._name(operation)
        for one, other in zip(first, found, strict=False):
            if one is other or not (one.has_channels or other.has_channels):
                continue
            reason = f"{name} is called with it and with what is not a channel"
            try:
                channels.unite(one.labels, other.labels, reason)
            except ValueError:
                for each in (one, other):
                    channels.lock(each.labels, f"{name} is called with tensors of several shapes")

    def _as_inputs(self, graph: Any, flowing: list[_Flowing]) -> list[_Flowing]:
        """Return what a graph gets, as it converts it: of its own rank."""
        values = converted(graph, [one.value for one in flowing])
        found = []
        for value, one in zip(values, flowing, strict=True):
            shape = tuple(value.shape[1:])
            if shape != one.labelled.shape:
                reason = f"{self._name(graph)} is called with a tensor of another rank"
                self.trace.channels.lock(one.labelled.labels, reason)
                found.append(_Flowing(value, unlabelled(shape)))
            else:
                found.append(_Flowing(value, one.labelled))
        return found

    def _call(self, node: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        operation = node.operation
        with user_code(f"{self._name(operation)}: the model does not run on the example"):
            values = call_eagerly(operation, *_map(args, kwargs, "value"))
        flat = tree.flatten(values)
        labelled_args, labelled_kwargs = _map(args, kwargs, "labelled")
        call = Call(
            operation=operation,
            path=self._paths.get(id(operation), operation.name),
            args=labelled_args,
            kwargs=labelled_kwargs,
            shapes=[tuple(one.shape[1:]) for one in flat],
            channels=self.trace.channels,
            variables=self.trace.variables,
            uses=self.trace.uses,
            own_filters=self.trace.own_filters,
        )
        outputs = _outputs(call)
        self.trace.tensors += outputs
        self.trace.outputs.setdefault(id(node), outputs)
        flowing = [_Flowing(*both) for both in zip(flat, outputs, strict=True)]
        return tree.pack_sequence_as(values, flowing)

    def _name(self, operation: Any) -> str:
        path = self._paths.get(id(operation), operation.name)
        return f"{path} ({type(operation).__name__})"


def _outputs(call: Call) -> list[Labelled]:
    """Return the labels of a call's outputs; without a rule, all that flows into it is locked."""
    reason = ""
    try:
        rule = RULES.get(type(call.operation))
        if rule is None:
            raise UnsupportedUse(f"{call} is an operation without a rule")
        if _is_altered(call.operation):
            raise UnsupportedUse(f"{call} computes with quantized or low-rank weights")
        outputs = rule(call)
        if [output.shape for output in outputs] == call.shapes:
            return outputs
        reason = f"{call} returns another shape than its rule says"
    except UnsupportedUse as error:
        reason = str(error)
    for one in call.inputs:
        call.channels.lock(one.labels, reason)
    return [unlabelled(shape) for shape in call.shapes]


def _is_altered(layer: Any) -> bool:
    return bool(getattr(layer, "lora_enabled", False) or getattr(layer, "quantization_mode", None))


def _map(args: tuple[Any, ...], kwargs: dict[str, Any], what: str) -> tuple[Any, Any]:
    def one_of(one: Any) -> Any:
        return getattr(one, what) if isinstance(one, _Flowing) else one

    found: tuple[Any, Any] = tree.map_structure(one_of, (args, kwargs))
    return found
