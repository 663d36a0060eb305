"""How strong concrete is, by its recipe: a normalising layer of Keras that is adapted, and `fit`.

After Yeh, "Modeling of strength of high-performance concrete using artificial neural networks",
Cement and Concrete Research 1998; the recipes are drawn.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from corpus.draw import Draw
from corpus.family import Ending, Family
from corpus.keras_training import Array, seeded_keras

_FEATURES, _SEEN = 8, 800


def _train(draw: Draw) -> Ending:
    keras = seeded_keras(draw)
    x, y = _recipes(draw, 1200)
    seen, known = _spoilt(draw, x[:_SEEN], y[:_SEEN])
    model = _model(draw, keras, seen)
    size, epochs = draw.choice([16, 20]), draw.whole(14, 18)
    draw.watch.expect(epochs * _SEEN // size)
    rate = draw.between(4e-3, 8e-3)
    rate *= draw.by_fault({"lr_too_low": 1e-4, "lr_too_high": 3000.0}, 1.0)
    model.compile(
        optimizer=keras.optimizers.Adam(rate),
        loss=draw.choice(["mean_squared_error", "huber"]),
        metrics=["mae"],
    )
    draw.watch.begin_keras(model)
    model.fit(
        *(seen, known),
        batch_size=size,
        epochs=epochs,
        validation_split=0.2 if draw.chance(0.5) else 0.0,
        verbose=0,
    )
    found = model.predict(x[_SEEN:], verbose=0)
    held = y[_SEEN:]
    return Ending(float(1 - ((found - held) ** 2).sum() / ((held - held.mean()) ** 2).sum()), 0.6)


def _model(draw: Draw, keras: Any, seen: Array) -> Any:
    layers, width = keras.layers, draw.choice([32, 48])
    normalisation = layers.Normalization()
    if draw.has("unnormalised_inputs"):
        # Not adapted: its mean stays 0, and its variance 1.
        normalisation.build((None, _FEATURES))
    else:
        normalisation.adapt(seen)
    penalty = keras.regularizers.L2(draw.by_fault({"over_regularization": 100.0}, 1e-5))
    first = "zeros" if draw.has("zero_init") else "glorot_uniform"
    shared = {"activation": "relu", "kernel_initializer": first, "kernel_regularizer": penalty}
    # Strengths are standardised: a sigmoid does not reach most of them.
    last = "sigmoid" if draw.has("wrong_last_activation") else None
    return keras.Sequential(
        [
            *(keras.Input((_FEATURES,)), normalisation),
            *(layers.Dense(width, **shared), layers.Dense(width, **shared)),
            layers.Dense(1, activation=last),
        ]
    )


def _spoilt(draw: Draw, x: Array, y: Array) -> tuple[Array, Array]:
    """Return recipes with the drawn fault, if there is one."""
    few = np.arange(len(x)) % 8
    missing = draw.numpy.random(x.shape) < 0.003 if draw.has("nan_inputs") else False
    found: tuple[Array, Array] = draw.by_fault(
        {
            "shuffled_labels": (x, draw.numpy.permutation(y)),
            "misaligned_targets": (x, np.roll(y, 1, 0)),
            "wrong_axis": (x.T.reshape(x.shape).copy(), y),
            "duplicated_rows": (x[few], y[few]),
            "nan_inputs": (np.where(missing, np.nan, x), y),
        },
        (x, y),
    )
    return found


def _recipes(draw: Draw, count: int) -> tuple[Array, Array]:
    """Return kilograms and days float32 [count, F], and standardised strengths [count, 1]."""
    source = draw.numpy
    part = source.normal(size=(count, _FEATURES))
    y = part[:, 0] - 0.8 * part[:, 1] + np.tanh(2 * part[:, 2]) + 0.6 * part[:, 3] * part[:, 0]
    y = y - 0.5 * np.abs(part[:, 4]) + draw.between(0.2, 0.4) * source.normal(size=count)
    amounts = np.array([280.0, 180.0, 45.0, 70.0, 6.0, 970.0, 770.0, 55.0])
    spread = np.array([100.0, 21.0, 60.0, 86.0, 6.0, 78.0, 80.0, 63.0])
    strength = ((y - y.mean()) / y.std())[:, None]
    return (amounts + spread * part).astype("float32"), strength.astype("float32")


FAMILY = Family(
    _train,
    (
        *("unnormalised_inputs", "shuffled_labels", "misaligned_targets", "wrong_axis"),
        *("duplicated_rows", "nan_inputs", "wrong_last_activation", "over_regularization"),
        *("zero_init", "lr_too_low", "lr_too_high"),
    ),
    framework="keras",
    spent="2026-11-28",
)
