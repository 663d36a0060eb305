"""Recognition of errors of the values of chosen actions, by the autograd graph of a loss."""

from __future__ import annotations

from collections import deque
from typing import Any

from torch import Tensor

from vinedresser.frameworks.torch_.losses.picked_losses import picked_columns

# Functions by which errors are weighted, summed and averaged.
_LINEAR = (
    *("MeanBackward", "SumBackward", "AddBackward", "DivBackward", "MulBackward"),
    *("SqueezeBackward", "UnsqueezeBackward", "ViewBackward", "StackBackward"),
)
_ERRORS = ("MseLossBackward", "SmoothL1LossBackward", "HuberLossBackward")
# Functions of a difference by which errors are written by hand.
_OF_DIFFERENCES = ("PowBackward", "AbsBackward", "MulBackward")
_SHAPES = ("SqueezeBackward", "UnsqueezeBackward", "ViewBackward", "SelectBackward")
_MOST_NODES = 32
_MOST_SHAPES = 3
# A single row may be anything.
_LEAST_ROWS = 2


def compares_actions(loss: Tensor) -> bool:
    """Return whether a loss is an error of one output per row, each picked by an index.

    Such are the errors of Q-learning (Mnih et al., "Human-level control through deep reinforcement
    learning", Nature 518, 2015): the outputs are the values of all actions, and the picked ones
    those of the actions that were chosen. The targets follow from the model's own estimates.

    Args:
        loss: loss [] with a gradient, whose graph has not been freed by a backward pass.
    """
    waiting: deque[Any] = deque([loss.grad_fn])
    for _ in range(_MOST_NODES):
        if not waiting:
            return False
        node = waiting.popleft()
        if node is None:
            continue
        name = node.name()
        if name.startswith(_ERRORS + _OF_DIFFERENCES) and _is_error_of_picked(node):
            return True
        if name.startswith(_LINEAR):
            waiting.extend(origin for origin, _ in node.next_functions)
    return False


def _is_error_of_picked(node: Any) -> bool:
    """Return whether a node computes an error whose only argument with a gradient was picked."""
    if not node.name().startswith(_ERRORS):
        node = node.next_functions[0][0]
        if node is None or node.name() != "SubBackward0":
            return False
    origins = [origin for origin, _ in node.next_functions]
    if len(origins) != 2 or (origins[0] is None) == (origins[1] is None):
        return False
    origin = origins[0] or origins[1]
    for _ in range(_MOST_SHAPES):
        if origin is None or not origin.name().startswith(_SHAPES):
            break
        origin = origin.next_functions[0][0]
    picked = None if origin is None else picked_columns(origin)
    return picked is not None and picked.numel() >= _LEAST_ROWS
