"""The functions of a small pruning of a Keras model."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import keras
import numpy as np
from keras import layers

from vinedresser.capture import Hook

CLASSES = 3


def network() -> Any:
    """Return the network with random weights."""
    image = keras.Input((8, 8, 1))
    x = layers.Conv2D(8, 3, padding="same", name="stem")(image)
    x = layers.ReLU()(layers.BatchNormalization()(x))
    y = layers.Conv2D(8, 3, padding="same", name="inner")(x)
    x = layers.Add()([x, y])
    x = layers.GlobalAveragePooling2D()(x)
    return keras.Model(image, layers.Dense(CLASSES, name="head")(x))


def data() -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]:
    """Return images, float32 [24, 8, 8, 1], and their labels, int64 [24]."""
    draw = np.random.default_rng(0)
    labels = draw.integers(0, CLASSES, 24)
    images = draw.normal(labels[:, None, None, None], 1.0, (24, 8, 8, 1))
    return images.astype(np.float32), labels


def example() -> Any:
    """Return an input of the network."""
    return data()[0][:2]


def loss() -> Any:
    """Return the loss function."""
    return keras.losses.SparseCategoricalCrossentropy(from_logits=True)


def train(model: Any, hook: Hook, epochs: int = 1) -> None:
    """Fine-tune the network in the run of a hook."""
    hook.watch(model)
    fit(model, epochs)


def fit(model: Any, epochs: int) -> None:
    """Fine-tune the network on batches in a fixed order."""
    model.compile(optimizer=keras.optimizers.SGD(0.01), loss=loss())
    images, labels = data()
    model.fit(images, labels, epochs=epochs, batch_size=8, shuffle=False, verbose=0)


def evaluate(model: Any) -> float:
    """Return the negative loss."""
    images, labels = data()
    return -float(loss()(labels, model(images, training=False)))


def losses(model: Any) -> Iterator[Any]:
    """Yield the loss of one batch."""
    images, labels = data()
    yield loss()(labels, model(images))
