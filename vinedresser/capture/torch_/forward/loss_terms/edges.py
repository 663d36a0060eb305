"""Edges of the autograd graph, and the gradients that flow through them."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable

from torch import Tensor
from torch.autograd.graph import Node, get_gradient_edge

__all__ = ["Edge", "consumers", "edge_of", "on_gradient", "on_result"]

# A node, and the place among its results.
Edge = tuple[Node, int]
_Taker = Callable[[Tensor], object]
_Gradients = tuple[Tensor | None, ...]


def edge_of(tensor: Tensor) -> Edge:
    """Return the edge through which a tensor that requires a gradient gets it."""
    edge = get_gradient_edge(tensor)
    return edge.node, edge.output_nr


def consumers(
    outputs: Iterable[Edge], inputs: Collection[Edge], since: int
) -> Iterable[tuple[Node, int, Edge]]:
    """Yield the operations of a call that read its inputs.

    A tensor that a call and others read, such as the input of a residual block, gets the sum of
    their gradients. What the call itself adds to it is what these operations return.

    Args:
        outputs: edges of the results of the call.
        inputs: edges of its arguments.
        since: sequence number of autograd at the start of the call: earlier operations are not
            part of it.

    Yields:
        An operation, the place of the gradient among those that it returns, and the input.
    """
    waiting = list({edge[0] for edge in outputs})
    seen = set(waiting)
    while waiting:
        node = waiting.pop()
        if node._sequence_nr() < since:
            continue
        for place, (following, result) in enumerate(node.next_functions):
            if following is None:
                continue
            if (following, result) in inputs:
                yield node, place, (following, result)
            elif following not in seen:
                seen.add(following)
                waiting.append(following)


def on_gradient(edge: Edge, take: _Taker) -> None:
    """Call a function with the whole gradient of an edge whenever it is computed."""
    node, place = edge

    def arrived(gradients: _Gradients) -> None:
        gradient = gradients[place]
        if gradient is not None:
            take(gradient)

    node.register_prehook(arrived)


def on_result(node: Node, place: int, take: _Taker) -> None:
    """Call a function with the gradient that an operation returns at a place."""

    def arrived(returned: _Gradients, _: _Gradients) -> None:
        gradient = returned[place]
        if gradient is not None:
            take(gradient)

    node.register_hook(arrived)
