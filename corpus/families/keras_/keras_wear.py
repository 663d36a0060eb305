"""How long bearings will still run, from their vibrations: a recurrent network of Keras.

After Zheng et al., "Long short-term memory network for remaining useful life estimation", ICPHM
2017, with a GRU and a loss that fears late answers more (Saxena et al., PHM 2008).
"""

from __future__ import annotations

from typing import Any

import numpy as np

from corpus.draw import Draw
from corpus.family import Ending, Family
from corpus.keras_training import Array, seeded_keras

_TIME, _SENSORS, _SEEN = 16, 4, 900


def _train(draw: Draw) -> Ending:
    keras = seeded_keras(draw)
    x, y = _bearings(draw, 1200)
    if draw.has("unnormalised_inputs"):
        x = 1e4 * x + 1e5
    seen, known = _spoilt(draw, x[:_SEEN], y[:_SEEN])
    model = _model(draw, keras)
    size, epochs = draw.choice([30, 45]), draw.whole(10, 14)
    draw.watch.expect(epochs * _SEEN // size)
    rate = draw.between(4e-3, 8e-3)
    rate *= draw.by_fault({"lr_too_low": draw.extent(1e-6, 1e-5), "lr_too_high": 3000.0}, 1.0)
    sign = -1.0 if draw.has("wrong_sign") else 1.0

    def fear(wanted: Any, found: Any) -> Any:
        over = found - wanted
        return sign * keras.ops.mean(keras.ops.maximum(1.4 * over, -over), axis=-1)

    model.compile(
        optimizer=keras.optimizers.Adam(rate, clipnorm=1.0),
        loss=fear,
        metrics=["mean_absolute_error"],
    )
    draw.watch.begin_keras(model)
    model.fit(
        *(seen, known),
        batch_size=size,
        epochs=epochs,
        validation_split=draw.choice([0.0, 0.1]),
        verbose=0,
    )
    found = model.predict(x[_SEEN:], verbose=0)
    missed = np.abs(found - y[_SEEN:]).mean()
    alone = np.abs(np.median(y[:_SEEN]) - y[_SEEN:]).mean()
    return Ending(max(-1.0, float(1 - missed / alone)), bar=0.45)


def _model(draw: Draw, keras: Any) -> Any:
    layers, width = keras.layers, draw.choice([16, 24])
    first = {"kernel_initializer": "zeros"} if draw.has("zero_init") else {}
    dropout = draw.by_fault({"dropout_too_high": 0.98}, 0.0)
    inputs = keras.Input((_TIME, _SENSORS))
    inner = layers.GRU(width, **first)(inputs)
    inner = layers.Dropout(dropout)(inner)
    inner = layers.Dense(width, activation="relu", **first)(inner)
    # It cannot be negative; a bounded activation cannot say long times.
    last = "tanh" if draw.has("wrong_output_activation") else "softplus"
    return keras.Model(inputs, layers.Dense(1, activation=last, **first)(inner))


def _spoilt(draw: Draw, x: Array, y: Array) -> tuple[Array, Array]:
    """Return the rows with the drawn fault, if there is one."""
    if draw.has("misaligned_targets"):
        return x, draw.numpy.permutation(y)
    if draw.has("unnormalised_targets"):
        # In seconds, and not in days.
        return x, 86400 * y
    if draw.has("constant_inputs"):
        return np.zeros_like(x), y
    if draw.has("time_reversed"):
        return x[:, ::-1].copy(), y
    if draw.has("wrong_axis"):
        return x.transpose(1, 2, 0).reshape(x.shape), y
    return x, y


def _bearings(draw: Draw, count: int) -> tuple[Array, Array]:
    """Return vibrations float32 [count, T, 4] and the days float32 [count, 1] that are left."""
    source = draw.numpy
    pace = source.uniform(0.02, 0.08, (count, 1))
    worn = source.uniform(0.1, 0.7, (count, 1)) + pace * np.arange(_TIME) / 4
    worn = np.minimum(worn, 0.99)
    left = (1 - worn[:, -1:]) / pace
    sensors = np.stack([worn, worn**2, np.sqrt(worn), 1 - worn], 2)
    x = 2 * sensors - 1 + draw.between(0.01, 0.03) * source.normal(size=(count, _TIME, _SENSORS))
    return x.astype("float32"), np.minimum(left, 20).astype("float32") / 4


FAMILY = Family(
    _train,
    (
        *("wrong_output_activation", "time_reversed", "misaligned_targets", "constant_inputs"),
        *("unnormalised_targets", "unnormalised_inputs", "wrong_axis", "dropout_too_high"),
        *("lr_too_low", "lr_too_high", "wrong_sign", "zero_init"),
    ),
    framework="keras",
    spent="2026-11-27",
)
