"""Healthy trainings with Keras, which is imported late because it takes seconds."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np

from tests.rules.healthy_zoo.data import digits, rare_positives
from tests.rules.healthy_zoo.loop import watched

__all__ = ["KERAS"]

os.environ.setdefault("KERAS_BACKEND", "tensorflow")
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")


def _keras_cnn(store: Path, seed: int) -> None:
    """A convolution, dropout, and a final softmax; 10 epochs with validation."""
    import keras
    from keras import layers

    keras.utils.set_random_seed(seed)
    x, y, x_held, y_held = _arrays(digits(image=True))
    model = keras.Sequential(
        [
            keras.Input((1, 8, 8)),
            layers.Permute((2, 3, 1)),
            layers.Conv2D(8, 3, activation="relu"),
            layers.Flatten(),
            layers.Dropout(0.3),
            layers.Dense(10, activation="softmax"),
        ]
    )
    model.compile(
        keras.optimizers.Adam(3e-3), "sparse_categorical_crossentropy", metrics=["accuracy"]
    )
    with watched(store, learning_rate=3e-3) as hook:
        hook.watch(model)
        model.fit(x, y, batch_size=32, epochs=10, validation_data=(x_held, y_held), verbose=0)
    _, reached = model.evaluate(x_held, y_held, verbose=0)
    assert reached >= 0.92, f"accuracy {reached:.3f}"


def _keras_rare_class(store: Path, seed: int) -> None:
    """One row in twenty is positive, with ten times the weight; batch normalisation."""
    import keras
    from keras import layers

    keras.utils.set_random_seed(seed)
    x, y, x_held, y_held = _arrays(rare_positives())
    model = keras.Sequential(
        [
            keras.Input((20,)),
            layers.Dense(32),
            layers.BatchNormalization(),
            layers.Activation("relu"),
            layers.Dense(1, activation="sigmoid"),
        ]
    )
    model.compile(keras.optimizers.SGD(0.05, momentum=0.9), "binary_crossentropy", metrics=["AUC"])
    with watched(store) as hook:
        hook.watch(model)
        model.fit(
            x,
            y,
            batch_size=64,
            epochs=8,
            class_weight={0: 1.0, 1: 10.0},
            validation_data=(x_held, y_held),
            verbose=0,
        )
    found = (model.predict(x_held, verbose=0) > 0.5)[y_held > 0.5].mean()
    assert found >= 0.75, f"{found:.2f} of the positives found"


def _arrays(split: Any) -> list[np.ndarray[Any, Any]]:
    """Return a split's tensors as arrays."""
    return [one.numpy() for one in split]


KERAS = {"keras_cnn": _keras_cnn, "keras_rare_class": _keras_rare_class}
