"""The activation that the input of a loss function is the result of."""

from __future__ import annotations

import re
from typing import Any

_ACTIVATIONS = {
    "SoftmaxBackward0": "softmax",
    "SigmoidBackward0": "sigmoid",
    "TanhBackward0": "tanh",
    "ReluBackward0": "relu",
    "SoftplusBackward0": "softplus",
}
# Functions that select, order or convert values, but do not change them.
_SAME_VALUES = re.compile(
    r"(?:View|UnsafeView|ReshapeAlias|Squeeze|Unsqueeze|Select|Slice|Index|Permute|Transpose|T|"
    r"Clone|ToCopy|Alias|Split|Unbind|MaskedSelect|Expand)Backward\d*"
)
_MOST_NODES = 8


def activation_of(node: Any) -> tuple[str, Any]:
    """Return the activation whose values a node of the autograd graph passes on, and its node.

    Args:
        node: node that computed a tensor (`Tensor.grad_fn`); None if it has none.

    Returns:
        Name such as "sigmoid", and the node of the activation; "" and None if there is none.
    """
    for _ in range(_MOST_NODES):
        if node is None:
            break
        if activation := _ACTIVATIONS.get(node.name()):
            return activation, node
        if not _SAME_VALUES.fullmatch(node.name()):
            break
        node = node.next_functions[0][0]
    return "", None
