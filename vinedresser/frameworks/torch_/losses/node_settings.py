"""Settings of loss functions, as the nodes of the autograd graph have saved them."""

from __future__ import annotations

from typing import Any

from vinedresser.frameworks.torch_.losses.saved_tensors import signed

__all__ = ["node_settings"]

_REDUCTIONS = ("none", "mean", "sum")
_WEIGHTS = ("weight", "pos_weight")


def node_settings(node: Any) -> dict[str, Any]:
    """Return the settings of the function of an autograd node, as those of a loss module.

    Args:
        node: node of a function of `torch.nn.functional`.

    Returns:
        ``reduction`` and, if the function has them, ``ignore_index``, and whether there are weights
        as ``weight`` and ``pos_weight``.
    """
    found: dict[str, Any] = {}
    if hasattr(node, "_saved_reduction"):
        found["reduction"] = _REDUCTIONS[node._saved_reduction]
    if hasattr(node, "_saved_ignore_index"):
        found["ignore_index"] = signed(node._saved_ignore_index)
    for name in _WEIGHTS:
        # Unpacking them may run the user's code.
        raw = getattr(node, f"_raw_saved_{name}", None)
        if raw is not None:
            found[name] = raw.data is not None
    return found
