"""Which layers of Keras put out the values of an activation function."""

from __future__ import annotations

from types import MappingProxyType
from typing import Any

import keras

from vinedresser.store.collections.modules import ACTIVATIONS

__all__ = ["activation_name"]

# Layers that are an activation function, by class: its name in keras.activations.
_LAYERS = MappingProxyType(
    {
        keras.layers.ELU: "elu",
        keras.layers.LeakyReLU: "leaky_relu",
        keras.layers.PReLU: "prelu",
        keras.layers.ReLU: "relu",
        keras.layers.Softmax: "softmax",
    }
)
# Their activation is one of several inside of them; what they put out is of none.
_INSIDE = (keras.layers.RNN, keras.layers.LSTMCell, keras.layers.GRUCell)


def activation_name(layer: Any) -> str:
    """Return the activation function that a layer's output is of; "" where it is of none."""
    for base in type(layer).__mro__:
        if base in _LAYERS:
            return _LAYERS[base]
    function = getattr(layer, "activation", None)
    if function is None or isinstance(layer, _INSIDE):
        return ""
    if isinstance(function, keras.layers.Layer):
        return activation_name(function)
    name = str(getattr(function, "__name__", type(function).__name__))
    return name if name in ACTIVATIONS else ""
