"""Detection of layers whose output depends on the training mode."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import keras

__all__ = ["differs_in_training", "dropout_rates"]

_DROPPING = (keras.layers.Dropout, keras.layers.AlphaDropout, keras.layers.GaussianDropout)


def dropout_rates(layers: Iterable[tuple[str, Any]]) -> dict[str, float]:
    """Return the dropout rate of each layer with dropout.

    Args:
        layers: layers with their paths.
    """
    rates = {path: _dropout(layer) for path, layer in layers}
    return {path: rate for path, rate in rates.items() if rate > 0}


def differs_in_training(layers: Iterable[tuple[str, Any]]) -> bool:
    """Return whether the call of any layer depends on ``training``.

    This applies to dropout with a positive rate, also inside attention and recurrent layers, and to
    batch normalization that is not frozen.

    Args:
        layers: layers with their paths.
    """
    return any(
        layer.trainable if isinstance(layer, keras.layers.BatchNormalization) else _dropout(layer)
        for _, layer in layers
    )


def _dropout(layer: Any) -> float:
    """Return the dropout rate of a layer itself."""
    if isinstance(layer, _DROPPING):
        return float(layer.rate)
    if isinstance(layer, keras.layers.RNN):
        return max(_number(layer, "dropout"), _number(layer, "recurrent_dropout"))
    attends = isinstance(layer, keras.layers.MultiHeadAttention)
    return _number(layer, "dropout") if attends else 0.0


def _number(layer: Any, name: str) -> float:
    """Return an optional numeric attribute of a layer, 0 by default."""
    return float(getattr(layer, name, 0.0) or 0.0)
