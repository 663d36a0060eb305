"""Predictions and labels of loss functions, from the autograd graph of the loss."""

from __future__ import annotations

from collections import deque
from typing import Any, NamedTuple

import torch
from torch import Tensor

__all__ = ["LossInputs", "loss_inputs"]

# Attributes of autograd nodes that hold predictions and labels, by the name of the node.
_NODES = {
    "NllLossBackward0": ("self", "target"),
    "NllLoss2DBackward0": ("self", "target"),
    "BinaryCrossEntropyBackward0": ("self", "target"),
    "BinaryCrossEntropyWithLogitsBackward0": ("self", "target"),
    "MseLossBackward0": ("self", "target"),
    "SmoothL1LossBackward0": ("self", "target"),
    "HuberLossBackward0": ("self", "target"),
    "CtcLossBackward0": ("log_probs", "targets"),
}
# A loss is a few sums and products away from its functions; the rest of the graph is the model's.
_MOST_NODES = 24


class LossInputs(NamedTuple):
    """What a loss function compared.

    Attributes:
        predictions: its first argument as the function saved it; for a cross-entropy the
            logarithms of the softmax, whose cross-entropy is the same.
        labels: its second argument.
    """

    predictions: Tensor
    labels: Tensor


def loss_inputs(loss: Tensor) -> LossInputs | None:
    """Return what the loss function nearest to a loss compared.

    The graph must not have been freed by a backward pass.

    Args:
        loss: loss [] with a gradient, such as a weighted sum of several functions.

    Returns:
        Detached tensors; None if no such function is found, as for an L1 loss, which torch computes
        from elementary functions.
    """
    waiting, seen = deque([loss.grad_fn]), 0
    while waiting and seen < _MOST_NODES:
        node: Any = waiting.popleft()
        if node is None:
            continue
        seen += 1
        names = _NODES.get(node.name())
        if names is not None:
            predictions, labels = (_saved(node, name) for name in names)
            if predictions is None or labels is None:
                return None
            return LossInputs(_as_given(predictions), _as_given(labels))
        waiting.extend(origin for origin, _ in node.next_functions)
    return None


def _saved(node: Any, name: str) -> Tensor | None:
    """Return a tensor that an autograd node saved; None if it cannot be read without harm."""
    # Unpacking may run the user's code, such as the recomputation of a checkpoint.
    if getattr(node, f"_raw_saved_{name}").unpack_hook is not None:
        return None
    try:
        saved = getattr(node, f"_saved_{name}")
    except RuntimeError:
        # Freed by an earlier backward pass, or overwritten since.
        return None
    return saved.detach() if isinstance(saved, torch.Tensor) else None


def _as_given(saved: Tensor) -> Tensor:
    """Return a tensor without the dimensions to which the function has broadcast it."""
    while saved.ndim and saved.stride(0) == 0 and len(saved) > 1:
        saved = saved[0]
    for axis in range(saved.ndim):
        if saved.stride(axis) == 0:
            saved = saved.narrow(axis, 0, 1)
    return saved
