"""Digits by dense layers of Keras: the first network of its guide, with one-hot labels and `fit`.

After the guide of Keras, with the digits of Alpaydin and Kaynak in scikit-learn.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from sklearn.datasets import load_digits

from corpus.draw import Draw
from corpus.family import Ending, Family
from corpus.keras_training import Array, seeded_keras
from corpus.loop import gained

_PIXELS, _DIGITS, _SEEN = 64, 10, 1200


def _train(draw: Draw) -> Ending:
    keras = seeded_keras(draw)
    values, digits = load_digits(return_X_y=True)
    order = draw.numpy.permutation(len(values))
    x, y = (values[order] / 16).astype("float32"), digits[order]
    given, known = _prepared(draw, x, y)
    wanted = keras.utils.to_categorical(known, _DIGITS)
    model = _model(draw, keras)
    size, epochs = draw.choice([24, 32]), draw.whole(9, 12)
    draw.watch.expect(epochs * -(-_SEEN // size))
    rate = draw.between(0.05, 0.1)
    rate *= draw.by_fault({"lr_too_low": 1e-4, "lr_too_high": draw.extent(300, 3000)}, 1.0)
    model.compile(
        optimizer=keras.optimizers.SGD(rate, momentum=0.8),
        loss="categorical_crossentropy",
        metrics=["accuracy"],
    )
    draw.watch.begin_keras(model)
    model.fit(
        *(given[:_SEEN], wanted[:_SEEN]),
        batch_size=size,
        epochs=epochs,
        validation_data=(given[_SEEN:], wanted[_SEEN:]) if draw.chance(0.7) else None,
        verbose=0,
    )
    found = model.predict(given[_SEEN:], verbose=0).argmax(1)
    return Ending(gained(float(np.mean(found == y[_SEEN:])), 1 / _DIGITS), bar=0.7)


def _model(draw: Draw, keras: Any) -> Any:
    layers, width = keras.layers, draw.choice([32, 48])
    between = {"kernel_initializer": draw.by_fault({"zero_init": "zeros"}, "glorot_uniform")}
    dropout = draw.by_fault({"dropout_too_high": 0.98}, 0.2)
    # Sigmoids in ten layers.
    deep, kind = draw.by_fault({"vanishing": (9, "sigmoid")}, (1, "relu"))
    hidden = [layers.Dense(width, activation=kind, **between) for _ in range(1 + deep)]
    last = draw.by_fault({"wrong_output_activation": "relu"}, "softmax")
    return keras.Sequential(
        [
            *(keras.Input((_PIXELS,)), *hidden, layers.Dropout(dropout)),
            layers.Dense(_DIGITS, activation=last, **between),
        ]
    )


def _prepared(draw: Draw, x: Array, y: Array) -> tuple[Array, Array]:
    """Return digits as the script prepares them, with the drawn fault if there is one."""
    source = np.random.default_rng(draw.amount.getrandbits(32))
    wrong = source.random(len(y)) < draw.amount.uniform(0.75, 0.9)
    found: tuple[Array, Array] = draw.by_fault(
        {
            "shuffled_labels": (x, source.permutation(y)),
            "label_noise": (x, np.where(wrong, source.integers(0, _DIGITS, len(y)), y)),
            "wrong_axis": (x.T.reshape(x.shape).copy(), y),
        },
        (x, y),
    )
    return found


FAMILY = Family(
    _train,
    (
        *("shuffled_labels", "label_noise", "wrong_axis", "wrong_output_activation", "vanishing"),
        *("dropout_too_high", "zero_init", "lr_too_low", "lr_too_high"),
    ),
    framework="keras",
    spent="2026-11-28",
)
