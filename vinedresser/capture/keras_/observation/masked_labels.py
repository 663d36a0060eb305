"""Labels that a loss of Keras leaves out, since its predictions have a mask."""

from __future__ import annotations

from typing import Any

import keras
from keras.src.backend.common.masking import get_keras_mask

__all__ = ["IGNORED", "counted_labels"]

IGNORED = -100
"""Number of a label that does not count, as torch has it."""


def counted_labels(labels: Any, predictions: Any) -> Any:
    """Return class numbers, with `IGNORED` where the predictions are masked.

    A loss leaves these out, such as the padding of sentences (`Embedding(mask_zero=True)`).

    Args:
        labels: integer tensor [rows, ...], or any other value.
        predictions: tensor [rows, ..., classes], perhaps with a mask [rows, ...].

    Returns:
        int64 [rows, ...]; the labels as they are if there is no mask, or if they are not class
        numbers.
    """
    mask = get_keras_mask(predictions) if keras.ops.is_tensor(predictions) else None
    if mask is None or not keras.ops.is_tensor(labels):
        return labels
    fits = len(labels.shape) == len(mask.shape) == len(predictions.shape) - 1
    if not fits or not keras.backend.is_int_dtype(labels.dtype):
        return labels
    numbers = keras.ops.cast(labels, "int64")
    return keras.ops.where(keras.ops.cast(mask, "bool"), numbers, IGNORED)
