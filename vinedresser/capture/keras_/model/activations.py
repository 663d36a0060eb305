"""The activation functions of Keras layers."""

from __future__ import annotations

from types import MappingProxyType
from typing import Any

import keras

from vinedresser.store.collections.modules import ACTIVATIONS

__all__ = ["activation_name"]

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
