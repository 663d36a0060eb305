"""Losses that are computed from elementary functions, in the autograd graph."""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from torch import Tensor

from vinedresser.frameworks.torch_.losses.likelihoods import likelihood
from vinedresser.frameworks.torch_.losses.loss_paths import Path
from vinedresser.frameworks.torch_.losses.recomputed import (
    Recomputed,
    recomputed,
    result_shape,
    without_constant,
)
from vinedresser.frameworks.torch_.losses.saved_tensors import saved

__all__ = ["Elementary", "elementary_loss"]

_YES_OR_NO = ("binary_cross_entropy", "binary_cross_entropy_with_logits")
# A difference may be divided by a standard deviation.
_MOST_SCALINGS = 3
# Labels computed from a prediction and a difference are correct to this share of the largest.
_ROUNDING = 1e-5
# Maximum rounding error of labels that are taken for integers.
_WHOLE = 1e-2
# Minimum number of rows of a value that is computed from outputs: it may be a statistic of them.
_LEAST_ROWS = 2


class Elementary(NamedTuple):
    """What a loss computed from elementary functions compared.

    Attributes:
        predictions: predictions, detached; for a function of logarithms, these.
        labels: labels [like predictions].
        function: name of the function in `torch.nn.functional` that computes the same, or its
            negative; of errors, perhaps with weights.
        negative: whether the node computes the negative of that function, as the logarithms of
            likelihoods are.
        direct: whether the predictions are outputs of the model, not computed from them.
    """

    predictions: Tensor
    labels: Tensor
    function: str
    negative: bool = False
    direct: bool = True


def elementary_loss(node: Any, path: Path) -> Elementary | None:
    """Return what an autograd node compares, if it certainly compares predictions with labels.

    A difference is certain if it is taken between a tensor without a gradient and an output of the
    model, or values [rows, ...] that are computed from outputs only; torch saves it, and the labels
    are computed from it: integers exactly, others up to rounding. From labels of outputs to which a
    constant was added, this constant is subtracted. Elements that the loss leaves out
    by weights of 0 are left out. For likelihoods, see `likelihood`.

    Args:
        node: node of the function that is applied to each element.
        path: the functions between the loss and the node.

    Returns:
        None if it is not certain.
    """
    name = node.name()
    if name == "AbsBackward0":
        return _difference(node, "l1_loss", path)
    if name == "PowBackward0":
        return _difference(node, "mse_loss", path) if node._saved_exponent == 2 else None
    if name == "LinalgVectorNormBackward0":
        return _difference(node, "mse_loss", path) if node._saved_ord == 2 else None
    if name == "MulBackward0":
        (first, _), (second, _) = node.next_functions
        if first is not None and first is second:
            return _difference(node, "mse_loss", path)
    return _likelihood(node, path)


def _likelihood(node: Any, path: Path) -> Elementary | None:
    """Return what a likelihood compared, unless its weights may be the values of actions."""
    found = likelihood(node)
    if found is None or not path.by_label(found.labels):
        return None
    if path.mixed and found.function not in _YES_OR_NO:
        return None
    return _counted(Elementary(*found), path)


def _difference(node: Any, function: str, path: Path) -> Elementary | None:
    """Return what a function of a difference compared."""
    subtraction = _subtraction(node, path)
    if subtraction is None:
        return None
    origin, difference, path = subtraction
    first, second = origin.next_functions
    if origin._saved_alpha != 1 or (first[0] is None) == (second[0] is None):
        return None
    given = _given(*(second if first[0] is None else first))
    if given is None or not difference.numel() or not difference.is_floating_point():
        return None
    if given.value.dtype != difference.dtype:
        return None
    compared = _compared(given, difference if second[0] is None else -difference)
    if compared is None or (path.weights and _depend_on_sign(path, *compared)):
        return None
    return _counted(Elementary(*compared, function, direct=given.direct), path)


def _given(node: Any, place: int) -> Recomputed | None:
    """Return the predictions in a difference, of an output in its own shape.

    `F.l1_loss` expands outputs [N, 1] and labels [N] to [N, N] before it subtracts them.
    """
    output = recomputed(*node.next_functions[0]) if node.name() == "ExpandBackward0" else None
    if output is not None and output.direct and output.value.numel() == output.rows:
        square = result_shape(node, place) == (output.rows, output.rows)
        return output if square else without_constant(node, place)
    return without_constant(node, place)


def _subtraction(node: Any, path: Path) -> tuple[Any, Tensor, Path] | None:
    """Return the node of the difference that a function has as its argument, and its value.

    It may be divided by standard deviations, or multiplied by weights, which the path then has.
    """
    difference = saved(node, "self")
    origin = node.next_functions[0][0]
    for _ in range(_MOST_SCALINGS):
        if origin is None or difference is None:
            return None
        name = origin.name()
        if name == "SubBackward0":
            return origin, difference, path
        other = saved(origin, "other") if name in ("DivBackward0", "MulBackward0") else None
        if name == "NegBackward0":
            difference = -difference
        elif name == "DivBackward0" and other is not None:
            difference = difference * other
        elif name == "MulBackward0" and other is not None and origin.next_functions[1][0] is None:
            left_out = other == 0
            path = path._replace(weights=(*path.weights, ~left_out))
            difference = torch.where(left_out, difference, difference / other)
        else:
            return None
        origin = origin.next_functions[0][0]
    return None


def _compared(given: Recomputed, difference: Tensor) -> tuple[Tensor, Tensor] | None:
    """Return predictions and labels, from the predictions and their difference to the labels."""
    predictions = given.value
    if not given.direct:
        if predictions.shape != difference.shape or not predictions.ndim:
            return None
        if len(predictions) != given.rows or given.rows < _LEAST_ROWS:
            return None
        labels = _labels(predictions, difference)
        # A penalty, such as of shares that do not sum to 1, has a constant there.
        constant = labels is None or bool((labels == labels.reshape(-1)[0]).all())
        return None if constant else (predictions, labels)  # type: ignore[return-value]
    labels = _broadcast_labels(predictions, difference)
    if labels is None and predictions.numel() == difference.numel():
        predictions = predictions.reshape(difference.shape)
        labels = _labels(predictions, difference)
    return None if labels is None else (predictions, labels)


def _counted(found: Elementary, path: Path) -> Elementary | None:
    """Return the rows or entries of a comparison that count in the loss."""
    out = path.leaves_out(found.labels) if path.weights else None
    if out is None:
        return None if path.weights else found
    if bool(out.all()):
        return None
    if not bool(out.any()):
        return found
    rows = out.reshape(len(out), -1)
    whole = rows.all(1)
    # If entries of some rows are left out, no rows remain, only entries.
    kept = ~whole if bool((rows.any(1) == whole).all()) else ~out
    if kept.ndim > found.predictions.ndim:
        return None
    return found._replace(predictions=found.predictions[kept], labels=found.labels[kept])


def _depend_on_sign(path: Path, predictions: Tensor, labels: Tensor) -> bool:
    """Return whether weights depend on the signs of errors, as those of quantiles do, or may."""
    if predictions.shape != labels.shape:
        return True
    above = predictions > labels
    for weights in path.weights:
        if weights.shape != above.shape or bool(above.all()) or not bool(above.any()):
            continue
        high, low = weights[above], weights[~above]
        if bool((high == high[0]).all() & (low == low[0]).all() & (high[0] != low[0])):
            return True
    return False


def _broadcast_labels(predictions: Tensor, difference: Tensor) -> Tensor | None:
    """Return labels [N] of predictions [N, 1], or [N, 1] of [N], from the difference [N, N]."""
    rows = len(predictions) if predictions.ndim else 0
    if rows < 2 or predictions.numel() != rows or difference.shape != (rows, rows):
        return None
    if predictions.ndim == 2:
        return _labels(predictions[0], difference[0])
    labels = _labels(predictions[0], difference[:, 0]) if predictions.ndim == 1 else None
    return None if labels is None else labels[:, None]


def _labels(predictions: Tensor, difference: Tensor) -> Tensor | None:
    """Return predictions minus their difference to the labels; None if rounding may spoil them."""
    labels = predictions - difference
    whole, largest = labels.round(), labels.abs().max()
    # A difference is rounded to half a unit in its last place, and so is that of two.
    bound = torch.finfo(labels.dtype).eps * (difference.abs().max() + largest)
    # One transfer from a GPU.
    error, most, off = torch.stack([bound, largest, (labels - whole).abs().max()]).tolist()
    if not error <= _ROUNDING * most:
        return None
    return whole if off <= error <= _WHOLE else labels
