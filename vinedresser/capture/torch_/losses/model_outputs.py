"""Marks on the autograd graph that tell which results are outputs of the trained model."""

from __future__ import annotations

from typing import Any

from torch import Tensor

from vinedresser.capture.torch_.nesting import leaves

__all__ = ["mark_outputs", "marked_output"]

_KEY = "vinedresser.output"


def mark_outputs(output: Any) -> None:
    """Mark the outputs of a model in their graph, which keeps them as long as it lives itself.

    Args:
        output: nesting of tensors; those without a gradient are left out.
    """
    for _, one in leaves(output):
        node: Any = one.grad_fn
        if node is not None:
            # The parts of a split have one node.
            node.metadata[_KEY, one.output_nr] = (one.detach(), one._version)


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
