"""Keras on TensorFlow, imported when a training uses it, and classifiers that it fits.

Shape legend: N rows, C classes.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from corpus.draw import Draw
from corpus.family import Ending
from corpus.loop import gained

__all__ = ["CLASSIFIER_FAULTS", "classify", "seeded_keras"]

CLASSIFIER_FAULTS = (
    *("lr_too_high", "lr_too_low", "zero_init", "missing_softmax", "wrong_loss"),
    *("shuffled_labels", "off_by_one"),
)
# Bounds of the learning rates.
_RATES = {"SGD": (0.05, 0.15), "Adam": (1e-3, 4e-3), "RMSprop": (1e-3, 2e-3)}

Array = NDArray[Any]


def seeded_keras(draw: Draw) -> Any:
    """Return the module `keras`, on TensorFlow and with a seed of the training's choices."""
    os.environ["KERAS_BACKEND"] = "tensorflow"
    os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"
    import keras

    keras.utils.set_random_seed(draw.random.getrandbits(31))
    return keras


def classify(
    draw: Draw,
    keras: Any,
    build: Callable[[float, str], Any],
    x: Array,
    y: Array,
    *,
    epochs: tuple[int, int],
    bar: float,
) -> Ending:
    """Fit a classifier to two thirds of some rows, and score it with the others.

    Args:
        draw: choices of the training.
        keras: the module.
        build: make a model of scores [N, C], from a rate of dropout and the name of an initializer.
        x: inputs [N, ...].
        y: class numbers int [N].
        epochs: bounds of the number of epochs.
        bar: score that a healthy training reaches.
    """
    rows, size = 2 * len(x) // 3, draw.choice([16, 32, 64])
    count = draw.whole(*epochs)
    kind = draw.choice(sorted(_RATES))
    rate, dropout = draw.between(*_RATES[kind]), draw.choice([0.0, 0.1, 0.3])
    validated = draw.chance(0.7)
    rate *= draw.extent(300, 3000) if draw.has("lr_too_high") else 1.0
    rate *= draw.extent(1e-6, 1e-4) if draw.has("lr_too_low") else 1.0
    if draw.has("dropout_too_high"):
        dropout = draw.amount.uniform(0.95, 0.99)
    draw.watch.expect(count * -(-rows // size))
    model = build(dropout, "zeros" if draw.has("zero_init") else "glorot_uniform")
    known = y[:rows].copy()
    if draw.has("shuffled_labels"):
        known = draw.numpy.permutation(known)
    if draw.has("off_by_one"):
        known = (known + 1) % (y.max() + 1)
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=not draw.has("missing_softmax"))
    if draw.has("wrong_loss"):
        # The distance of all scores to the number of the class.
        loss, known = keras.losses.MeanSquaredError(), known[:, None].astype("float32")
    optimizer = getattr(keras.optimizers, kind)(rate)
    metrics = [] if draw.has("wrong_loss") else ["accuracy"]
    model.compile(optimizer=optimizer, loss=loss, metrics=metrics)
    draw.watch.begin_keras(model)
    held_out = (x[rows:], y[rows:, None] if draw.has("wrong_loss") else y[rows:])
    model.fit(
        *(x[:rows], known),
        batch_size=size,
        epochs=count,
        validation_data=held_out if validated else None,
        verbose=0,
    )
    found = model.predict(x[rows:], verbose=0).argmax(1)
    reached = np.mean([np.mean(found[y[rows:] == one] == one) for one in np.unique(y)])
    return Ending(gained(float(reached), 1 / len(np.unique(y))), bar=bar)
