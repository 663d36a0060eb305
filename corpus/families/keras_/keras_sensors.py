"""Curves of sensors in classes, by one-dimensional convolutions with Keras.

After Wang, Yan and Oates, "Time series classification from scratch with deep neural networks: a
strong baseline", IJCNN 2017.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from corpus.draw import Draw
from corpus.family import Ending, Family
from corpus.keras_training import CLASSIFIER_FAULTS, Array, classify, seeded_keras


def _train(draw: Draw) -> Ending:
    keras = seeded_keras(draw)
    classes, length = draw.choice([3, 4, 5]), draw.choice([32, 48])
    x, y = _curves(draw, draw.choice([600, 900]), classes, length)
    width, normalised = draw.choice([8, 16]), draw.chance(0.6)

    def build(dropout: float, initializer: str) -> Any:
        layers = keras.layers
        inner = inputs = keras.Input((length, 1))
        for size in (width, 2 * width):
            inner = layers.Conv1D(size, 5, padding="same", kernel_initializer=initializer)(inner)
            if normalised:
                inner = layers.BatchNormalization(momentum=0.9)(inner)
            inner = layers.ReLU()(inner)
        inner = layers.Dropout(dropout)(layers.GlobalMaxPooling1D()(inner))
        return keras.Model(inputs, layers.Dense(classes, kernel_initializer=initializer)(inner))

    return classify(draw, keras, build, x, y, epochs=(15, 30), bar=0.6)


def _curves(draw: Draw, count: int, classes: int, length: int) -> tuple[Array, Array]:
    """Return standardised curves float32 [count, length, 1] and classes int64 [count]."""
    source = draw.numpy
    y = source.integers(0, classes, count)
    place = np.arange(length) / length
    pitch = 1.5 + 2.0 * y[:, None]
    phase = source.uniform(0, 2 * math.pi, (count, 1))
    drift = source.normal(size=(count, 1)) * place
    noise = draw.between(0.15, 0.35) * source.normal(size=(count, length))
    x = np.sin(2 * math.pi * pitch * place + phase) + drift + noise
    return ((x - x.mean()) / x.std()).astype("float32")[..., None], y


FAMILY = Family(_train, CLASSIFIER_FAULTS, framework="keras", spent="2026-11-26")
