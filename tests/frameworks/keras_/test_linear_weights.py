"""Weights of a linear Keras model are those that one after another multiply its inputs."""

from __future__ import annotations

import os

os.environ.setdefault("KERAS_BACKEND", "tensorflow")
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import keras
import numpy as np
import pytest
from keras import layers

from vinedresser.frameworks.keras_.layers import linear_weights

IMAGES = (8, 8, 1)


class Doubled(layers.Dense):  # type: ignore[misc]
    """A layer whose call is not known."""


class Bent(keras.Sequential):  # type: ignore[misc]
    """A model that calls its layers itself."""

    def call(self, inputs: keras.KerasTensor, **_: object) -> keras.KerasTensor:
        """Return the outputs of the layers, each after a relu."""
        for layer in self.layers:
            inputs = keras.ops.relu(layer(inputs))
        return inputs


@pytest.mark.parametrize(
    ("shape", "between", "count"),
    [
        ((6,), [layers.Dense(8), layers.Dense(3)], 2),
        ((6,), [layers.Dense(8), layers.Dense(3, activation="softmax")], 2),
        ((6,), [layers.Dense(8), layers.Activation("linear"), layers.Dense(3)], 2),
        ((6,), [layers.Dense(8), layers.BatchNormalization(), layers.Dense(3)], 2),
        (IMAGES, [layers.Conv2D(4, 3), layers.Flatten(), layers.Dense(3)], 2),
        # A dense layer has the units of all positions.
        (IMAGES, [layers.Conv2D(4, 3), layers.Flatten(), layers.Dense(10)], 2),
        ((6,), [layers.Dense(8, activation="relu"), layers.Dense(3)], 0),
        ((6,), [layers.Dense(8), layers.ReLU(), layers.Dense(3)], 0),
        ((6,), [layers.Dense(8, activation=lambda x: x**2), layers.Dense(3)], 0),
        ((6,), [Doubled(8), layers.Dense(3)], 0),
        ((5, 6), [layers.Dense(8), layers.Dense(7), layers.LSTM(3)], 0),
        (IMAGES, [layers.Conv2D(4, 3), layers.MaxPooling2D(), layers.Dense(3)], 0),
        # A matrix of low rank, and a single layer.
        ((6,), [layers.Dense(2), layers.Dense(6)], 0),
        ((6,), [layers.Dense(3)], 0),
    ],
)  # fmt: skip
def test_weights_without_an_activation_between_them(
    shape: tuple[int, ...], between: list[keras.Layer], count: int
) -> None:
    model = keras.Sequential([keras.Input(shape), *between])
    found = linear_weights(model)
    assert len(found) == count
    if not found or any(isinstance(one, layers.BatchNormalization) for one in between):
        return
    # The outputs for a sum of rows are the sum of the outputs, but for the biases, which are 0.
    rows = np.random.default_rng(0).normal(size=(2, *shape)).astype("float32")
    model.layers[-1].activation = keras.activations.linear
    one, other, both = model(np.stack([*rows, rows.sum(0)])).numpy()
    assert np.allclose(one + other, both, atol=1e-5)


def test_of_other_models_nothing_is_known() -> None:
    inputs = keras.Input((6,))
    outputs = layers.Dense(3)(layers.Dense(8)(inputs))
    assert linear_weights(keras.Model(inputs, outputs)) == []
    assert linear_weights(keras.Sequential([layers.Dense(8), layers.Dense(3)])) == []
    assert linear_weights(Bent([keras.Input((6,)), layers.Dense(8), layers.Dense(3)])) == []
