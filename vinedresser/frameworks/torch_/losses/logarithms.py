"""Logarithms of probabilities in the autograd graph of a loss."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F  # noqa: N812 (the usual name)
from torch import Tensor

from vinedresser.frameworks.torch_.losses.recomputed import recomputed
from vinedresser.frameworks.torch_.losses.saved_tensors import saved, signed

__all__ = ["Logarithm", "logarithm", "probabilities", "sum_to_one"]

# Tolerance for the sum of float32 probabilities.
_SUMS = 1e-3
# Minimum number of classes.
_FEWEST = 2
# Maximum number of functions between a probability and its logarithm.
_MOST_BETWEEN = 3


class Logarithm(NamedTuple):
    """The result of a node that computes logarithms.

    Attributes:
        values: logarithms, detached.
        axis: axis of the classes.
        logits: argument [like values] of the logistic function before; None if there is none.
        complement: whether it seems to be the logarithm of 1 - p.
    """

    values: Tensor
    axis: int = -1
    logits: Tensor | None = None
    complement: bool = False


def logarithm(node: Any) -> Logarithm | None:
    """Return the result of a node if it computes logarithms, such as those of a softmax."""
    known = _KNOWN.get(node.name())
    if known is not None:
        return known(node)
    # A model may return logarithms.
    found = recomputed(node)
    return None if found is None else Logarithm(found.value)


def _log_softmax(node: Any) -> Logarithm | None:
    result = saved(node, "result")
    return None if result is None else Logarithm(result, signed(node._saved_dim))


def _log(node: Any) -> Logarithm | None:
    argument = saved(node, "self")
    if argument is None:
        return None
    if node.name() == "Log1PBackward0":
        return Logarithm(argument.log1p(), complement=True)
    return Logarithm(argument.log(), complement=_is_complement(node))


def _logsigmoid(node: Any) -> Logarithm | None:
    logits, before = saved(node, "self"), node.next_functions[0][0]
    if logits is None or before is None:
        return None
    negated = before.name() == "NegBackward0"
    return Logarithm(F.logsigmoid(logits), logits=logits, complement=negated)


def _clamped(node: Any) -> Logarithm | None:
    """Return clamped logarithms, such as those above -100."""
    values, least = saved(node, "self"), node._saved_min
    if values is None or least is None or least >= 0:
        return None
    return Logarithm(values.clamp(min=least))


def _difference(node: Any) -> Logarithm | None:
    """Return x - logsumexp(x), or logsigmoid(x) - x, which is logsigmoid(-x)."""
    (first, _), (second, _) = node.next_functions
    if first is None or second is None or node._saved_alpha != 1:
        return None
    if first.name() == "LogSigmoidBackward0" and first.next_functions[0][0] is second:
        logits = saved(first, "self")
        if logits is None:
            return None
        return Logarithm(F.logsigmoid(-logits), logits=-logits, complement=True)
    if second.name() != "LogsumexpBackward0" or second.next_functions[0][0] is not first:
        return None
    scores, total = saved(second, "self"), saved(second, "result")
    if scores is None or total is None or len(second._saved_dim) != 1:
        return None
    axis = signed(second._saved_dim[0])
    kept = total if second._saved_keepdim else total.unsqueeze(axis)
    return Logarithm(scores - kept, axis)


def _is_complement(node: Any) -> bool:
    """Return whether the argument of a logarithm is 1 - p, perhaps clamped or with a constant."""
    for _ in range(_MOST_BETWEEN):
        node = next((origin for origin, _ in node.next_functions if origin is not None), None)
        if node is None:
            return False
        if node.name().startswith("Rsub"):
            return True
        if node.name() == "SubBackward0":
            return bool(node.next_functions[0][0] is None)
        if not node.name().startswith(("Add", "Clamp")):
            return False
    return False


def probabilities(node: Any) -> Tensor | None:
    """Return the result of a node of probabilities that sum to 1 over the last axis, or None."""
    if node.name() == "SoftmaxBackward0":
        found = saved(node, "result")
    else:
        computed = recomputed(node)
        found = None if computed is None else computed.value
    if found is None or not found.ndim or not bool((found >= 0).all()):
        return None
    return found if sum_to_one(found, -1) else None


def sum_to_one(values: Tensor, axis: int) -> bool:
    """Return whether values sum to 1 over an axis.

    Args:
        values: floating-point values [...].
    """
    if not values.ndim or values.shape[axis] < _FEWEST:
        return False
    total = values.sum(axis)
    return bool(((total - 1).abs() <= _SUMS).all()) if torch.is_floating_point(total) else False


_KNOWN: dict[str, Callable[[Any], Logarithm | None]] = {
    "LogSoftmaxBackward0": _log_softmax,
    "LogBackward0": _log,
    "Log1PBackward0": _log,
    "LogSigmoidBackward0": _logsigmoid,
    "SubBackward0": _difference,
    "ClampBackward1": _clamped,
    "ClampMinBackward0": _clamped,
}
