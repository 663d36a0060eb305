"""Recognition of policy gradients, by the autograd graph of a loss."""

from __future__ import annotations

from collections import deque
from typing import Any

from torch import Tensor

from vinedresser.capture.torch_.losses.saved_tensors import saved

__all__ = ["is_policy_gradient"]

# Functions that keep the sign of each part of a sum, or change all signs.
_LINEAR = (
    *("MeanBackward", "SumBackward", "NegBackward", "AddBackward", "SubBackward", "DivBackward"),
    *("MinimumBackward", "MaximumBackward", "SqueezeBackward", "UnsqueezeBackward"),
    *("ViewBackward", "ReshapeAliasBackward", "ToCopyBackward", "StackBackward", "CatBackward"),
)
_STACKS = ("StackBackward", "CatBackward")
# A loss may be a sum over the steps of an episode.
_MOST_NODES = 256


def is_policy_gradient(loss: Tensor) -> bool:
    """Return whether a loss weights its parts with advantages.

    These are factors of both signs, or the common factors in the clipped objective of PPO (Schulman
    et al., "Proximal policy optimization algorithms", 2017), which may all be positive in the first
    batches.

    Such a loss (Williams, "Simple statistical gradient-following algorithms", 1992; also with
    clipped ratios, as PPO has) says nothing about progress: the model makes its own data, and the
    mean of the factors does not fall. Other losses of supervised trainings weight their parts with
    positive numbers only.

    The graph must not have been freed by a backward pass. Reads values, so that a GPU is waited
    for.

    Args:
        loss: loss [] with a gradient.
    """
    # Nodes, and whether each is part of a stack of single numbers.
    waiting: deque[tuple[Any, bool]] = deque([(loss.grad_fn, False)])
    signs: set[int] = set()
    seen = 0
    while waiting and seen < _MOST_NODES and len(signs) < 2:
        node, stacked = waiting.popleft()
        if node is None:
            continue
        seen += 1
        if _is_clipped(node):
            return True
        factor = _factor(node)
        if factor is not None and (stacked or factor.numel() > 1):
            signs |= {sign for sign in (-1, 1) if bool((sign * factor > 0).any())}
        scales = factor is not None and factor.numel() == 1
        if scales or node.name().startswith(_LINEAR):
            stacked |= node.name().startswith(_STACKS)
            waiting.extend((origin, stacked) for origin, _ in node.next_functions)
    return len(signs) == 2


def _is_clipped(node: Any) -> bool:
    """Return whether a node computes min(ratio * A, clamp(ratio) * A), or the maximum."""
    if not node.name().startswith(("MinimumBackward", "MaximumBackward")):
        return False
    products = [origin for origin, _ in node.next_functions]
    if any(one is None or _factor(one) is None for one in products):
        return False
    ratios = [
        next(origin for origin, _ in one.next_functions if origin is not None) for one in products
    ]
    return any(
        one.name().startswith("ClampBackward") and one.next_functions[0][0] is other
        for one, other in (ratios, reversed(ratios))
    )


def _factor(node: Any) -> Tensor | None:
    """Return the factor without a gradient of a product, or None."""
    if node.name() != "MulBackward0":
        return None
    first, second = (origin for origin, _ in node.next_functions)
    if first is not None and second is not None:
        return None
    return saved(node, "other" if second is None else "self")
