"""Formulas of common losses, to identify a loss by its values."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

__all__ = ["FORMULAS", "class_indices", "one_hot_rows", "row_losses"]

_Array = NDArray[np.float64]

# Keras clips probabilities like this before a logarithm.
_CLIP = 1e-7


def one_hot_rows(labels: NDArray[Any]) -> bool:
    """Return whether labels [rows, ..., classes] are class weights that sum to 1 in each row."""
    if labels.ndim < 2 or labels.shape[-1] < 2:
        return False
    values = np.asarray(labels, np.float64)
    return bool((values >= 0).all() and np.allclose(values.sum(-1), 1, atol=1e-3))


def class_indices(labels: NDArray[Any], classes: int) -> NDArray[np.int64] | None:
    """Return labels as class numbers.

    Args:
        labels: integers below ``classes`` ([...] or [..., 1], any dtype), or class weights
            [..., classes].

    Returns:
        int64 [...]; None if the labels are not classes.
    """
    if one_hot_rows(labels) and labels.shape[-1] == classes:
        return np.asarray(np.asarray(labels, np.float64).argmax(-1), np.int64)
    values = np.asarray(labels, np.float64)
    if values.ndim > 1 and values.shape[-1] == 1:
        values = values[..., 0]
    if values.size == 0 or not (values == np.rint(values)).all():
        return None
    if values.min() < 0 or values.max() >= classes:
        return None
    return values.astype(np.int64)


def _log_softmax(values: _Array) -> _Array:
    shifted = values - values.max(-1, keepdims=True)
    return np.asarray(shifted - np.log(np.exp(shifted).sum(-1, keepdims=True)), np.float64)


def _picked(log_probabilities: _Array, labels: NDArray[Any]) -> _Array | None:
    """Return the cross-entropy [rows, ...] given log probabilities [rows, ..., classes]."""
    classes = log_probabilities.shape[-1]
    if log_probabilities.ndim < 2 or classes < 2:
        return None
    if labels.shape == log_probabilities.shape and one_hot_rows(labels):
        weighted = np.asarray(labels, np.float64) * log_probabilities
        return np.asarray(-weighted.sum(-1), np.float64)
    numbers = class_indices(labels, classes)
    if numbers is None or numbers.shape != log_probabilities.shape[:-1]:
        return None
    return -np.take_along_axis(log_probabilities, numbers[..., None], -1)[..., 0]


def _cross_entropy_of_logits(labels: NDArray[Any], predictions: _Array) -> _Array | None:
    return _picked(_log_softmax(predictions), labels)


def _cross_entropy_of_logarithms(labels: NDArray[Any], predictions: _Array) -> _Array | None:
    return _picked(predictions, labels) if (predictions <= 1e-6).all() else None


def _cross_entropy_of_probabilities(labels: NDArray[Any], predictions: _Array) -> _Array | None:
    if predictions.ndim < 2 or (predictions < 0).any():
        return None
    sums = predictions.sum(-1, keepdims=True)
    shares = predictions / np.where(sums > 0, sums, 1)
    return _picked(np.log(np.clip(shares, _CLIP, 1 - _CLIP)), labels)


def _as_predictions(labels: NDArray[Any], predictions: _Array) -> _Array | None:
    """Return labels in the shape of the predictions, which may have an additional axis of 1."""
    values = np.asarray(labels, np.float64)
    if values.shape == predictions.shape:
        return values
    return values.reshape(predictions.shape) if values.size == predictions.size else None


def _binary(labels: NDArray[Any], predictions: _Array) -> _Array | None:
    values = _as_predictions(labels, predictions)
    return values if values is not None and ((values >= 0) & (values <= 1)).all() else None


def _binary_of_logits(labels: NDArray[Any], predictions: _Array) -> _Array | None:
    values = _binary(labels, predictions)
    if values is None:
        return None
    return np.maximum(predictions, 0) - predictions * values + np.log1p(np.exp(-abs(predictions)))


def _binary_of_probabilities(labels: NDArray[Any], predictions: _Array) -> _Array | None:
    values = _binary(labels, predictions)
    if values is None or (predictions < 0).any() or (predictions > 1).any():
        return None
    clipped = np.clip(predictions, _CLIP, 1 - _CLIP)
    return -(values * np.log(clipped) + (1 - values) * np.log(1 - clipped))


def _squared(labels: NDArray[Any], predictions: _Array) -> _Array | None:
    values = _as_predictions(labels, predictions)
    return None if values is None else (values - predictions) ** 2


def _absolute(labels: NDArray[Any], predictions: _Array) -> _Array | None:
    values = _as_predictions(labels, predictions)
    return None if values is None else abs(values - predictions)


def _huber(labels: NDArray[Any], predictions: _Array) -> _Array | None:
    errors = _absolute(labels, predictions)
    return None if errors is None else np.where(errors < 1, errors**2 / 2, errors - 0.5)


# By name of the loss and kind of predictions: labels and predictions to losses, [rows, ...].
FORMULAS: dict[tuple[str, str], Callable[[NDArray[Any], _Array], _Array | None]] = {
    ("cross_entropy", "logits"): _cross_entropy_of_logits,
    ("cross_entropy", "probabilities"): _cross_entropy_of_probabilities,
    ("cross_entropy", "logarithms"): _cross_entropy_of_logarithms,
    ("binary_cross_entropy", "logits"): _binary_of_logits,
    ("binary_cross_entropy", "probabilities"): _binary_of_probabilities,
    ("mean_squared_error", ""): _squared,
    ("mean_absolute_error", ""): _absolute,
    ("huber", ""): _huber,
}


def row_losses(
    loss: tuple[str, str], labels: NDArray[Any], predictions: NDArray[np.float64]
) -> NDArray[np.float64] | None:
    """Return the loss of each row, the mean over its entries.

    Args:
        loss: key of `FORMULAS`.
        labels: [rows, ...], any dtype.
        predictions: float64 [rows, ...].

    Returns:
        float64 [rows], not finite for predictions that are not finite or too large; None if shapes
        or values do not fit the loss.
    """
    if not labels.size or not predictions.size:
        return None
    with np.errstate(over="ignore", invalid="ignore", divide="ignore"):
        values = FORMULAS[loss](labels, predictions)
        if values is None:
            return None
        return np.asarray(values.reshape(len(values), -1).mean(1), np.float64)
