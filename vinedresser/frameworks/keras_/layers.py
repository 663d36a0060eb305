"""Properties of Keras layers: activation functions, attention, dependence on the training mode."""

from __future__ import annotations

import inspect
import math
from collections.abc import Iterable
from itertools import pairwise
from types import MappingProxyType
from typing import Any

import keras
from keras import ops

from vinedresser.store.collections.modules import ACTIVATIONS

__all__ = [
    "activation_name",
    "attention_scores",
    "differs_in_training",
    "dropout_rates",
    "linear_weights",
]

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
# Layers that multiply by a weight, and others that are linear in their inputs.
_WEIGHING = frozenset(
    {keras.layers.Dense, keras.layers.Conv1D, keras.layers.Conv2D, keras.layers.Conv3D}
)
_LINEAR = frozenset(
    {
        keras.layers.Activation,
        keras.layers.AveragePooling1D,
        keras.layers.AveragePooling2D,
        keras.layers.AveragePooling3D,
        keras.layers.BatchNormalization,
        keras.layers.Dropout,
        keras.layers.Flatten,
        keras.layers.GlobalAveragePooling1D,
        keras.layers.GlobalAveragePooling2D,
        keras.layers.GlobalAveragePooling3D,
        keras.layers.Permute,
        keras.layers.Reshape,
    }
)


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


def linear_weights(model: Any) -> list[Any]:
    """Return the weights by which a linear model multiplies its inputs one after another.

    What comes after the last weight may be an activation.

    Args:
        model: any model; only of a `keras.Sequential` with built layers the order is known.

    Returns:
        Kernels; [] if there are fewer than two, if any activation is between them, or anything
        that may be one, if other layers have weights, or if fewer weights would do less: of a
        matrix of low rank.
    """
    if not isinstance(model, keras.Sequential) or type(model).call is not keras.Sequential.call:
        return []
    weights: list[Any] = []
    bent = False
    for layer in model.layers:
        if type(layer) in _WEIGHING and layer.built:
            if bent:
                return []
            weights.append(layer.kernel)
        elif type(layer) not in _LINEAR:
            if layer.weights:
                return []
            bent = True
        bent |= getattr(layer, "activation", None) not in (None, keras.activations.linear)
    return [] if all(_is_low_rank(*pair) for pair in pairwise(weights)) else weights


def _is_low_rank(first: Any, second: Any) -> bool:
    """Return whether there are fewer units between two kernels than inputs and outputs.

    If the second has other inputs, they are those of several positions.
    """
    *inputs, units = first.shape
    *_, given, outputs = second.shape
    return bool(given == units < min(math.prod(inputs), outputs))


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
