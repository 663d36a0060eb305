"""Trainings of Keras on TensorFlow for the benchmark of the guard."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Any

os.environ["KERAS_BACKEND"] = "tensorflow"

import keras
import numpy as np

from vinedresser.capture import Hook, SaveConfig

import tensorflow as tf  # isort: skip

__all__ = ["KERAS_MODELS", "KerasTraining"]

_NEVER = {name: SaveConfig(every=0) for name in ("losses", "metrics", "saved")}


def _cnn() -> Any:
    """Return a convolutional network with batch normalization and dropout."""
    layers = keras.layers
    return keras.Sequential(
        [
            layers.Input((28, 28, 1)),
            *(layers.Conv2D(16, 3), layers.BatchNormalization(), layers.ReLU()),
            *(layers.MaxPooling2D(), layers.Conv2D(32, 3), layers.BatchNormalization()),
            *(layers.ReLU(), layers.MaxPooling2D(), layers.Flatten(), layers.Dropout(0.2)),
            *(layers.Dense(64, activation="relu"), layers.Dense(10)),
        ]
    )


def _mlp() -> Any:
    """Return a network of four layers with 0.5 million parameters."""
    dense = keras.layers.Dense
    hidden = [dense(400, activation="relu") for _ in range(3)]
    flat = [keras.layers.Input((28, 28, 1)), keras.layers.Flatten()]
    return keras.Sequential([*flat, *hidden, dense(10)])


# Function that makes the model, and whether XLA compiles it.
KERAS_MODELS = {
    "keras-mlp": (_mlp, False),
    "keras-cnn": (_cnn, False),
    "keras-cnn-jit": (_cnn, True),
}


class KerasTraining:
    """A training of one arm, on batches of 32 random images.

    Args:
        name: key of `KERAS_MODELS`.
        arm: see `benchmarks.guard`.
        folder: folder of the run.
        steps: steps of a block.
    """

    def __init__(self, name: str, arm: str, folder: Path, steps: int) -> None:
        keras.utils.set_random_seed(0)
        make, jit = KERAS_MODELS[name]
        self.model = make()
        loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
        self.model.compile(keras.optimizers.SGD(1e-3, momentum=0.9), loss, jit_compile=jit)
        generator = np.random.default_rng(0)
        self._images = generator.normal(size=(32 * steps, 28, 28, 1)).astype(np.float32)
        self._labels = generator.integers(0, 10, 32 * steps)
        self.hook: Hook | None = None
        if not arm.startswith("plain"):
            guard = "nonfinite" if arm == "guard" else "off"
            self.hook = Hook(folder, collections=_NEVER, guard=guard).watch(self.model)
        self._batches = self._data()
        self.block(steps)

    def block(self, steps: int) -> float:
        """Take some steps; return the CPU seconds of the process for each."""
        began = time.process_time()
        self.model.fit(self._batches.take(steps), verbose=0)
        return (time.process_time() - began) / steps

    def break_(self) -> None:
        """Take a step whose gradients are not finite."""
        self._images[:] = np.inf
        self.model.fit(self._data().take(1), verbose=0)

    def _data(self) -> Any:
        return tf.data.Dataset.from_tensor_slices((self._images, self._labels)).batch(32)
