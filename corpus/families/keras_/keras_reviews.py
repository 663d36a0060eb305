"""Short texts with a mood, by the mean of word vectors, with Keras.

After Joulin et al., "Bag of tricks for efficient text classification", EACL 2017.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from corpus.draw import Draw
from corpus.family import Ending, Family
from corpus.keras_training import CLASSIFIER_FAULTS, Array, classify, seeded_keras


def _train(draw: Draw) -> Ending:
    keras = seeded_keras(draw)
    moods, words, length = draw.choice([2, 3, 4]), draw.choice([100, 200]), draw.choice([12, 20])
    x, y = _reviews(draw, draw.choice([900, 1500]), moods, words, length)
    width, hidden = draw.choice([16, 32]), draw.choice([16, 32])

    def build(dropout: float, initializer: str) -> Any:
        layers = keras.layers
        return keras.Sequential(
            [
                keras.Input((length,), dtype="int32"),
                layers.Embedding(words, width),
                layers.GlobalAveragePooling1D(),
                layers.Dense(hidden, activation="relu", kernel_initializer=initializer),
                layers.Dropout(dropout),
                layers.Dense(moods, kernel_initializer=initializer),
            ]
        )

    return classify(draw, keras, build, x, y, epochs=(15, 30), bar=0.5)


def _reviews(draw: Draw, count: int, moods: int, words: int, length: int) -> tuple[Array, Array]:
    """Return words int32 [count, length] and moods int64 [count]."""
    source = draw.numpy
    y = source.integers(0, moods, count)
    chances = source.dirichlet([0.3] * words, moods) + 0.3 / words
    chances /= chances.sum(1, keepdims=True)
    x = [source.choice(words, length, p=chances[mood]) for mood in y]
    return np.stack(x).astype("int32"), y


FAMILY = Family(
    _train, (*CLASSIFIER_FAULTS, "dropout_too_high"), framework="keras", spent="2026-11-26"
)
