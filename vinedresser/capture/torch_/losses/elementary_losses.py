"""Losses that are computed from elementary functions, in the autograd graph."""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from torch import Tensor

from vinedresser.capture.torch_.losses.model_outputs import marked_output
from vinedresser.capture.torch_.losses.picked_losses import picked_loss
from vinedresser.capture.torch_.losses.saved_tensors import saved

__all__ = ["Elementary", "elementary_loss", "is_plain"]

_LOG_SOFTMAX = "LogSoftmaxBackward0"
# Functions that change the shape of a tensor, but not the order of its elements.
_SHAPES = ("ViewBackward0", "UnsqueezeBackward", "SqueezeBackward", "ReshapeAliasBackward0")
# Functions between a loss and its function that treat all elements alike.
_PLAIN = (
    *_SHAPES,
    "MeanBackward",
    "SumBackward",
    "NegBackward0",
    "AddBackward0",
    "SubBackward0",
    "CloneBackward0",
    "MulBackward1",
    "DivBackward1",
)
_MOST_SHAPES = 4
# Labels computed from a prediction and a difference are correct to this share of the largest.
_ROUNDING = 1e-5
# Maximum rounding error of labels that are taken for integers.
_WHOLE = 1e-2
# Tolerance for the sum of float32 probabilities.
_SUMS = 1e-3


class Elementary(NamedTuple):
    """What a loss computed from elementary functions compared.

    Attributes:
        predictions: predictions, detached; for a function of logarithms, these.
        labels: labels [like predictions].
        function: name of the function in `torch.nn.functional` that computes the same, or its
            negative.
        negative: whether the node computes the negative of that function, as the logarithms of
            likelihoods are.
    """

    predictions: Tensor
    labels: Tensor
    function: str
    negative: bool = False


def is_plain(node: Any) -> bool:
    """Return whether the function of an autograd node treats all elements of a loss alike."""
    if node.name() in ("MulBackward0", "DivBackward0"):
        # A product with a number; the other factor is None if it has a gradient, too.
        factor = saved(node, "other")
        return factor is not None and factor.numel() == 1
    return bool(node.name().startswith(_PLAIN))


def elementary_loss(node: Any) -> Elementary | None:
    """Return what an autograd node compares, if it certainly compares predictions with labels.

    A difference is certain if it is taken between an output of the model and a tensor without a
    gradient; torch saves it, and the labels are computed from it: integers exactly, others up to
    rounding. A product is certain if its factors are a log_softmax and probabilities without a
    gradient. See also `picked_loss`.

    Args:
        node: node of the function that is applied to each element.

    Returns:
        None if it is not certain.
    """
    name = node.name()
    if name == "AbsBackward0":
        return _difference(node, "l1_loss")
    if name == "PowBackward0":
        return _difference(node, "mse_loss") if node._saved_exponent == 2 else None
    if name == "MulBackward0":
        (first, _), (second, _) = node.next_functions
        if first is not None and first is second:
            return _difference(node, "mse_loss")
        return _cross_entropy(node)
    picked = picked_loss(node)
    if picked is not None:
        return Elementary(
            picked.predictions, picked.labels, "cross_entropy", negative=picked.negative
        )
    return _divergence(node) if name == "SubBackward0" else None


def _difference(node: Any, function: str) -> Elementary | None:
    """Return what a function of a difference compared."""
    origin = node.next_functions[0][0]
    if origin is None or origin.name() != "SubBackward0" or origin._saved_alpha != 1:
        return None
    (minuend, _), (subtrahend, _) = origin.next_functions
    if (minuend is None) == (subtrahend is None):
        return None
    predictions = _output(minuend or subtrahend)
    difference = saved(node, "self")
    if predictions is None or difference is None or not difference.numel():
        return None
    if predictions.dtype != difference.dtype:
        return None
    difference = difference if subtrahend is None else -difference
    labels = _broadcast_labels(predictions, difference)
    if labels is None and predictions.numel() == difference.numel():
        predictions = predictions.reshape(difference.shape)
        labels = _labels(predictions, difference)
    return None if labels is None else Elementary(predictions, labels, function)


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


def _output(node: Any) -> Tensor | None:
    """Return the output of the model that is the result of a node, perhaps in another shape."""
    for _ in range(_MOST_SHAPES):
        output = marked_output(node)
        if output is not None:
            return output
        if node is None or not node.name().startswith(_SHAPES):
            return None
        node = node.next_functions[0][0]
    return None


def _cross_entropy(node: Any) -> Elementary | None:
    """Return what a product of probabilities and logarithms of a softmax compared."""
    (first, _), (second, _) = node.next_functions
    if (first is None) == (second is None):
        return None
    origin, probabilities = (second, "self") if first is None else (first, "other")
    return _distributions(origin, saved(node, probabilities), "cross_entropy")


def _divergence(node: Any) -> Elementary | None:
    """Return what `F.kl_div` compared: t log t - t log p."""
    (entropy, _), (product, _) = node.next_functions
    if entropy is not None or product is None or product.name() != "MulBackward0":
        return None
    found = _cross_entropy(product)
    return None if found is None else found._replace(function="kl_div", negative=False)


def _distributions(origin: Any, labels: Tensor | None, function: str) -> Elementary | None:
    """Return the logarithms that a node returned and the labels, if they are probabilities."""
    if labels is None or origin.name() != _LOG_SOFTMAX:
        return None
    predictions = saved(origin, "result")
    if predictions is None or predictions.shape != labels.shape or not labels.numel():
        return None
    # A negative axis is saved as an unsigned number of 64 bits.
    axis = (origin._saved_dim + 2**63) % 2**64 - 2**63
    off = (labels.sum(axis) - 1).abs().max()
    probabilities = labels.min() >= 0 and off <= _SUMS
    return Elementary(predictions, labels, function, negative=True) if probabilities else None
