"""Marks on the autograd graph that tell which results are outputs of the trained model."""

from __future__ import annotations

from typing import Any

from torch import Tensor

from vinedresser.frameworks.torch_.nesting import leaves

__all__ = ["forwards_of", "mark_outputs", "marked_output"]

_KEY, _FORWARD = "vinedresser.output", "vinedresser.forward"
# Maximum number of functions between a value and the outputs of the model.
_MOST_NODES = 200


def mark_outputs(output: Any, forward: int = 0) -> None:
    """Mark the outputs of a model in their graph, which keeps them as long as it lives itself.

    Args:
        output: nesting of tensors; those without a gradient are left out.
        forward: number of the forward in its step, from 1; 0: unknown.
    """
    for _, one in leaves(output):
        node: Any = one.grad_fn
        if node is not None:
            # The parts of a split have one node.
            node.metadata[_KEY, one.output_nr] = (one.detach(), one._version)
            if forward:
                node.metadata[_FORWARD, one.output_nr] = forward


def marked_output(node: Any, place: int = 0) -> Tensor | None:
    """Return the output of the model that is a result of an autograd node.

    Args:
        node: the node, or None.
        place: number of the result among those of its function.

    Returns:
        The output, detached; None if there is none, or if it has been overwritten since.
    """
    output, version = (None, 0) if node is None else node.metadata.get((_KEY, place), (None, 0))
    return output if isinstance(output, Tensor) and output._version == version else None


def forwards_of(node: Any, place: int = 0) -> frozenset[int] | None:
    """Return the numbers of the forwards whose outputs a value was computed from.

    Args:
        node: autograd node of the value.
        place: number of the value among the results of its function.

    Returns:
        None if too many functions are between them.
    """
    waiting, seen, found = [(node, place)], set[Any](), set[int]()
    while waiting:
        node, place = waiting.pop()
        if node is None or node in seen:
            continue
        forward = node.metadata.get((_FORWARD, place), 0)
        if forward:
            found.add(forward)
            continue
        if len(seen) >= _MOST_NODES:
            return None
        seen.add(node)
        waiting.extend(node.next_functions)
    return frozenset(found)
