"""Cross-entropies that pick the score of each row's class by its index, in the autograd graph.

Shape legend: N rows, C classes.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from torch import Tensor

from vinedresser.frameworks.torch_.losses.logarithms import logarithm, probabilities, sum_to_one
from vinedresser.frameworks.torch_.losses.saved_tensors import saved

__all__ = ["Picked", "is_last_axis", "picked_columns", "picked_loss"]

_LOG, _LOGSUMEXP = "LogBackward0", "LogsumexpBackward0"
_SOFTMAX = "SoftmaxBackward0"
_GATHER, _INDEX = "GatherBackward0", "IndexBackward0"
# Functions between picked probabilities and their logarithms.
_BOUNDS = ("AddBackward0", "ClampBackward1", "ClampMinBackward0")
# Functions by which a column [N, 1] becomes [N].
_COLUMNS = ("SelectBackward0", "SqueezeBackward")
# A single row may be a step of a policy, and its class an action.
_LEAST_ROWS = 2


class Picked(NamedTuple):
    """What a cross-entropy compared.

    Attributes:
        predictions: scores [N, C], or the logarithms of their softmax.
        labels: class numbers int64 [N].
        negative: whether the node computes log-likelihoods, not their negatives.
        function: "cross_entropy", or "nll_loss" if the softmax is one over another axis, or lacks
            its logarithm.
    """

    predictions: Tensor
    labels: Tensor
    negative: bool
    function: str = "cross_entropy"


def picked_loss(node: Any) -> Picked | None:
    """Return what an autograd node compares if it computes a cross-entropy by indexing.

    Known are logarithms of probabilities, such as ``scores.log_softmax(1)``, and probabilities of
    which the logarithms are taken then, of which `torch.gather` or ``[range(N), labels]`` takes one
    element per row, and ``scores.logsumexp(1)`` minus such elements of the scores.

    Args:
        node: node of the function that is applied to each row.

    Returns:
        None if it computes something else.
    """
    if node.name() == "SubBackward0":
        return _of_scores(node)
    if node.name() == _LOG:
        return _of_probabilities(node)
    node = _taken(node)
    origin = None if node is None else node.next_functions[0][0]
    if origin is not None and origin.name() == _SOFTMAX:
        # Without a logarithm, as `F.nll_loss` of probabilities.
        shares = probabilities(origin)
        picked = None if shares is None else _compared(node, shares, negative=True)
        return None if picked is None else picked._replace(function="nll_loss")
    found = None if origin is None else logarithm(origin)
    if found is None:
        return None
    other = not is_last_axis(found.axis % (1 << 64), found.values.ndim)
    if not sum_to_one(found.values.exp(), found.axis):
        return None
    picked = _compared(node, found.values, negative=True)
    return picked if picked is None or not other else picked._replace(function="nll_loss")


def _of_probabilities(node: Any) -> Picked | None:
    """Return what the logarithms of picked probabilities compared."""
    inner = node.next_functions[0][0]
    if inner is not None and inner.name() in _BOUNDS:
        inner = next((one for one, _ in inner.next_functions if one is not None), None)
    picking = None if inner is None else _taken(inner)
    origin = None if picking is None else picking.next_functions[0][0]
    found = None if origin is None else probabilities(origin)
    if found is None:
        return None
    least = torch.finfo(found.dtype).tiny
    return _compared(picking, found.clamp(min=least).log(), negative=True)


def is_last_axis(axis: int, axes: int) -> bool:
    """Return whether an axis that an autograd node saved is the last one.

    Args:
        axis: as saved; a negative one is saved as an unsigned number of 64 bits.
        axes: number of axes of the tensor.
    """
    return axis in (axes - 1, (1 << 64) - 1)


def _of_scores(node: Any) -> Picked | None:
    """Return what the difference of a logsumexp and picked scores compared."""
    (total, _), (column, _) = node.next_functions
    picking = None if column is None else _taken(column)
    if total is None or total.name() != _LOGSUMEXP or picking is None or node._saved_alpha != 1:
        return None
    # Both must have the same scores.
    if total.next_functions[0][0] is not picking.next_functions[0][0]:
        return None
    scores = saved(total, "self")
    if scores is None or len(total._saved_dim) != 1:
        return None
    if not is_last_axis(total._saved_dim[0], scores.ndim):
        return None
    return _compared(picking, scores, negative=False)


def _taken(node: Any) -> Any:
    """Return the node that picks one element per row; None if there is none at this place."""
    if node.name().startswith(_COLUMNS):
        node = node.next_functions[0][0]
    return node if node is not None and node.name() in (_GATHER, _INDEX) else None


def picked_columns(node: Any) -> Tensor | None:
    """Return the column of each row that an autograd node picks.

    Known are `torch.gather` along the last axis, and ``[range(N), columns]``.

    Args:
        node: the node; its argument is [..., C].

    Returns:
        int64 [...]; None if the node does something else.
    """
    if node.name() == _GATHER:
        index = saved(node, "index")
        if index is None or not is_last_axis(node._saved_dim, index.ndim) or index.shape[-1] != 1:
            return None
        return index[..., 0]
    raw = node._raw_saved_indices if node.name() == _INDEX else ()
    # Unpacking may run the user's code.
    if len(raw) != 2 or any(one.unpack_hook is not None for one in raw):
        return None
    rows, columns = node._saved_indices
    if any(one is None or one.dtype != torch.int64 for one in (rows, columns)):
        return None
    if rows.ndim != 1 or columns.shape != rows.shape:
        return None
    everyone = torch.arange(len(rows), device=rows.device)
    return columns.detach() if torch.equal(rows, everyone) else None


def _compared(picking: Any, scores: Tensor, *, negative: bool) -> Picked | None:
    labels = picked_columns(picking)
    if labels is None or labels.shape != scores.shape[:-1] or labels.numel() < _LEAST_ROWS:
        return None
    return Picked(scores.reshape(-1, scores.shape[-1]), labels.reshape(-1), negative)
