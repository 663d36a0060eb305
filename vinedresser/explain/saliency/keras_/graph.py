"""The operators of a traced model that depend on its input, with their implicit biases."""

from __future__ import annotations

from typing import Any, NamedTuple

import tensorflow as tf

from vinedresser.explain.saliency.axes import Axes
from vinedresser.explain.saliency.keras_.axes import axes_of_input, axes_of_output
from vinedresser.explain.saliency.keras_.implicit_biases import implicit_bias

__all__ = ["Found", "Noted", "noted_operators"]

# They look up the embeddings of token ids.
_LOOKUPS = frozenset(("ResourceGather", "GatherV2", "Gather"))


class Noted(NamedTuple):
    """A result of an operator whose implicit bias is not zero.

    Attributes:
        layer: path of the layer; "" for the model itself.
        operator: type of the operator.
        scope: scope of the operator in the graph, which is that of one call of a layer, or part of
            it.
        output: the symbolic result.
        bias: its implicit bias, broadcastable to it.
        axes: where examples and pixels lie in it.
    """

    layer: str
    operator: str
    scope: str
    output: Any
    bias: Any
    axes: Axes


class Found(NamedTuple):
    """What depends on the input.

    Attributes:
        leaves: tensors with respect to which the model is explained: the input, or the embeddings
            of token ids.
        axes: those of the leaves.
        noted: the operators, in their order.
        uncovered: operators without a derivative, with their layers.
    """

    leaves: list[Any]
    axes: Axes
    noted: list[Noted]
    uncovered: dict[str, None]


def noted_operators(
    operators: list[Any], given: Any, layers: frozenset[str], *, channels_last: bool
) -> Found:
    """Follow the input through a graph.

    Args:
        operators: all operators, in the order of their creation.
        layers: names of all layers.
        channels_last: images are [batch, H, W, C].
    """
    tokens = not given.dtype.is_floating
    axes = axes_of_input(given.shape.as_list(), channels_last=channels_last, tokens=tokens)
    found = Found([] if tokens else [given], axes, [], {})
    known: dict[Any, Axes] = {} if tokens else {given.ref(): axes}
    ids = {given.ref()} if tokens else set()
    # Lists of tensors, in which loops keep what depends on the input.
    lists: set[Any] = set()
    for operator in operators:
        dependent = [one for one in operator.inputs if one.ref() in known]
        listed = any(one.ref() in lists for one in operator.inputs)
        looked_up = not dependent and any(one.ref() in ids for one in operator.inputs)
        for output in operator.outputs:
            if output.dtype == tf.variant and (dependent or listed):
                lists.add(output.ref())
            elif listed and output.dtype.is_floating:
                known[output.ref()] = {}
                found.uncovered[_place(operator, layers)] = None
            elif dependent and output.dtype.is_floating:
                sources = [(one, known[one.ref()]) for one in dependent]
                known[output.ref()] = axes_of_output(output, sources)
                _note(found, output, dependent, known[output.ref()], layers)
            elif looked_up and operator.type in _LOOKUPS and output.dtype.is_floating:
                if output.shape[:-1] == given.shape:
                    found.leaves.append(output)
                    known[output.ref()] = axes
            elif looked_up:
                ids.add(output.ref())
    return found


def _note(
    found: Found, output: Any, dependent: list[Any], axes: Axes, layers: frozenset[str]
) -> None:
    operator = output.op
    scope = operator.name.rpartition("/")[0]
    layer = _layer(scope, layers)
    try:
        bias = implicit_bias(output, dependent)
    except (LookupError, NotImplementedError):
        found.uncovered[_place(operator, layers)] = None
        return
    if bias is not None:
        found.noted.append(Noted(layer, operator.type, scope, output, bias, axes))


def _place(operator: Any, layers: frozenset[str]) -> str:
    layer = _layer(operator.name.rpartition("/")[0], layers)
    return f"{operator.type} in {layer or 'the model'}"


def _layer(scope: str, layers: frozenset[str]) -> str:
    """Return the path of a layer whose call has a scope in the graph.

    Keras opens the scope of a layer twice, so that TensorFlow appends a number to its name.
    """
    parts = (part.rpartition("_")[0] for part in scope.split("/"))
    return "/".join(part for part in parts if part in layers)
