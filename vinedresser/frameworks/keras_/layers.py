"""Properties of Keras layers: activation functions, attention, dependence on the training mode."""

from __future__ import annotations

import inspect
from collections.abc import Iterable
from types import MappingProxyType
from typing import Any

import keras
from keras import ops

from vinedresser.store.collections.modules import ACTIVATIONS

__all__ = ["activation_name", "attention_scores", "differs_in_training", "dropout_rates"]

# Name in keras.activations by class of activation layers.
_LAYERS = MappingProxyType(
    {
        keras.layers.ELU: "elu",
        keras.layers.LeakyReLU: "leaky_relu",
        keras.layers.PReLU: "prelu",
        keras.layers.ReLU: "relu",
        keras.layers.Softmax: "softmax",
    }
)
# Layers with inner activations that do not apply to their output.
_INNER_ACTIVATIONS = (keras.layers.RNN, keras.layers.LSTMCell, keras.layers.GRUCell)
_DROPPING = (keras.layers.Dropout, keras.layers.AlphaDropout, keras.layers.GaussianDropout)


def activation_name(layer: Any) -> str:
    """Return the name of the activation applied to a layer's output; "" if there is none."""
    for base in type(layer).__mro__:
        if base in _LAYERS:
            return _LAYERS[base]
    function = getattr(layer, "activation", None)
    if function is None or isinstance(layer, _INNER_ACTIVATIONS):
        return ""
    if isinstance(function, keras.layers.Layer):
        return activation_name(function)
    name = str(getattr(function, "__name__", type(function).__name__))
    return name if name in ACTIVATIONS else ""


def attention_scores(layer: Any, result: Any, args: tuple[Any, ...], kwargs: Any) -> Any:
    """Return the attention of each head before dropout: [batch, heads, queries, keys], float.

    A layer with a fused kernel never computes it. It is then computed from the arguments with the
    layer's own formula: softmax(scale Q K^T) under its mask (Vaswani et al. 2017, equation 1).

    Args:
        layer: a MultiHeadAttention or GroupQueryAttention.
        result: result of its ``_compute_attention``: output and scores; the scores may be None.
    """
    if isinstance(result, tuple) and len(result) > 1 and result[1] is not None:
        return result[1]
    signature = inspect.signature(type(layer)._compute_attention)
    given = signature.bind(layer, *args, **kwargs).arguments
    query, key, mask = given["query"], given["key"], given.get("attention_mask")
    if given.get("use_causal_mask"):
        causal = layer._compute_causal_mask(query, given["value"])
        mask = causal if mask is None else ops.logical_and(ops.cast(mask, "bool"), causal)
    scale = getattr(layer, "_inverse_sqrt_key_dim", None)
    scale = layer._inverse_sqrt_head_dim if scale is None else scale
    query = ops.multiply(query, ops.cast(scale, query.dtype))
    scores = ops.einsum(layer._dot_product_equation, key, query)
    return layer._masked_softmax(scores, mask)


def dropout_rates(layers: Iterable[tuple[str, Any]]) -> dict[str, float]:
    """Return the dropout rate of each layer with dropout."""
    rates = {path: _dropout(layer) for path, layer in layers}
    return {path: rate for path, rate in rates.items() if rate > 0}


def differs_in_training(layers: Iterable[tuple[str, Any]]) -> bool:
    """Return whether the call of any layer depends on ``training``.

    This applies to dropout with a positive rate, also inside attention and recurrent layers, and to
    batch normalization that is not frozen.
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
