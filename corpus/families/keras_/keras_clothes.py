"""Clothes by a convolutional network of Keras: one-hot labels, callbacks and `fit`.

After the tutorial "Basic classification" of TensorFlow, whose pictures are those of Xiao, Rasul and
Vollgraf, "Fashion-MNIST", 2017.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from corpus.data.fashion import clothes
from corpus.draw import Draw
from corpus.family import Ending, Family
from corpus.keras_training import Array, seeded_keras
from corpus.loop import gained

_SEEN, _KINDS = 1000, 10


def _train(draw: Draw) -> Ending:
    keras = seeded_keras(draw)
    order = draw.numpy.permutation(6000)[:1500]
    pictures, labels = (one.numpy()[order] for one in clothes(6000))
    x, y = pictures.transpose(0, 2, 3, 1), labels
    seen, known = _spoilt(draw, x[:_SEEN], y[:_SEEN])
    model = _model(draw, keras)
    size, epochs = draw.choice([25, 40]), draw.whole(7, 9)
    draw.watch.expect(epochs * _SEEN // size)
    rate = draw.between(2e-3, 4e-3)
    rate *= draw.by_fault({"lr_too_low": 1e-5, "lr_too_high": 1000.0}, 1.0)
    model.compile(
        optimizer=keras.optimizers.Adam(rate), loss="categorical_crossentropy", metrics=["accuracy"]
    )
    draw.watch.begin_keras(model)
    callbacks = [keras.callbacks.ReduceLROnPlateau(monitor="loss", factor=0.5, patience=2)]
    model.fit(
        *(seen, np.eye(_KINDS)[known]),
        batch_size=size,
        epochs=epochs,
        validation_data=(x[_SEEN:], np.eye(_KINDS)[y[_SEEN:]]) if draw.chance(0.7) else None,
        callbacks=callbacks if draw.chance(0.6) else [],
        verbose=0,
    )
    found = model.predict(x[_SEEN:], verbose=0).argmax(1)
    right = np.mean([np.mean(found[y[_SEEN:] == one] == one) for one in range(_KINDS)])
    return Ending(gained(float(right), 1 / _KINDS), bar=0.6)


def _model(draw: Draw, keras: Any) -> Any:
    layers, width = keras.layers, draw.choice([12, 16])
    first = "zeros" if draw.has("zero_init") else "he_normal"
    dropout = draw.by_fault({"dropout_too_high": 0.99}, draw.choice([0.2, 0.3]))
    return keras.Sequential(
        [
            keras.Input((14, 14, 1)),
            layers.Conv2D(width, 3, activation="relu", kernel_initializer=first),
            layers.MaxPooling2D(2),
            layers.Conv2D(2 * width, 3, activation="relu", kernel_initializer=first),
            *(layers.Flatten(), layers.Dense(64, activation="relu", kernel_initializer=first)),
            *(layers.Dropout(dropout), layers.Dense(_KINDS, activation="softmax")),
        ]
    )


def _spoilt(draw: Draw, x: Array, y: Array) -> tuple[Array, Array]:
    """Return pictures with the drawn fault, if there is one."""
    found: tuple[Array, Array] = draw.by_fault(
        {
            "shuffled_labels": (x, draw.numpy.permutation(y)),
            "off_by_one": (x, (y + 1) % _KINDS),
            # Bytes: the test divides by 255, and the training does not.
            "preprocessing_mismatch": (128 + 80 * x, y),
            "constant_inputs": (np.zeros_like(x), y),
        },
        (x, y),
    )
    return found


FAMILY = Family(
    _train,
    (
        *("shuffled_labels", "off_by_one", "preprocessing_mismatch", "constant_inputs"),
        *("zero_init", "dropout_too_high"),
        *("lr_too_low", "lr_too_high"),
    ),
    framework="keras",
    spent="2026-11-28",
)
