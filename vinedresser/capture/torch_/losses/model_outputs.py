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
            node.metadata[_KEY] = one.detach()


def marked_output(node: Any) -> Tensor | None:
    """Return the output of the model that is the result of an autograd node, detached, or None."""
    found = None if node is None else node.metadata.get(_KEY)
    return found if isinstance(found, Tensor) else None
