"""Energy that a house needs in the next hours: a recurrent layer of Keras, windows and `fit`.

After the tutorial "Time series forecasting" of TensorFlow; the house is drawn.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from corpus.draw import Draw
from corpus.family import Ending, Family
from corpus.keras_training import Array, seeded_keras

_TIME, _AHEAD, _FEATURES, _HOURS, _SEEN = 16, 3, 3, 1200, 850


def _train(draw: Draw) -> Ending:
    keras = seeded_keras(draw)
    x, y = _windows(_house(draw))
    given, known = _prepared(draw, x, y)
    seen, labels = given[:_SEEN], known[:_SEEN]
    if draw.has("duplicated_rows"):
        few = np.arange(_SEEN) % 16
        seen, labels = seen[few], labels[few]
    model = _model(draw, keras)
    size, epochs = draw.choice([24, 32]), draw.whole(9, 12)
    draw.watch.expect(epochs * -(-_SEEN // size))
    rate = draw.between(4e-3, 8e-3)
    rate *= draw.by_fault({"lr_too_low": 1e-4, "lr_too_high": 3000.0}, 1.0)
    model.compile(
        optimizer=keras.optimizers.Adam(rate, clipnorm=1.0),
        loss="mae",
        metrics=[keras.metrics.RootMeanSquaredError()],
    )
    draw.watch.begin_keras(model)
    stop = keras.callbacks.EarlyStopping(patience=4, restore_best_weights=True)
    validated = draw.chance(0.8)
    model.fit(
        *(seen, labels),
        batch_size=size,
        epochs=epochs,
        validation_data=(given[_SEEN:], known[_SEEN:]) if validated else None,
        callbacks=[stop] if validated and draw.chance(0.4) else [],
        verbose=0,
    )
    # What is known afterwards only is not there when the model is used.
    used, true = (x if draw.has("target_leak") else given)[_SEEN:], y[_SEEN:]
    if draw.has("unnormalised_targets"):
        true = known[_SEEN:]
    found = model.predict(used, verbose=0)
    return Ending(float(1 - ((found - true) ** 2).sum() / ((true - true.mean(0)) ** 2).sum()), 0.5)


def _model(draw: Draw, keras: Any) -> Any:
    layers, width = keras.layers, draw.choice([24, 32])
    first = "zeros" if draw.has("zero_init") else "glorot_uniform"
    # Of standardised values, half are below zero.
    last = "relu" if draw.has("wrong_last_activation") else None
    recurrent = layers.GRU(width, kernel_initializer=first, recurrent_initializer=first)
    if draw.has("frozen_layers"):
        recurrent.trainable = False
    return keras.Sequential(
        [
            *(keras.Input((_TIME, _FEATURES)), recurrent),
            *(layers.Dense(width, activation="relu", kernel_initializer=first),),
            layers.Dense(_AHEAD, activation=last, kernel_initializer=first),
        ]
    )


def _prepared(draw: Draw, x: Array, y: Array) -> tuple[Array, Array]:
    """Return windows as the script prepares them, with the drawn fault if there is one."""
    late = x.copy()
    # The last hours of the window are those to foretell.
    late[:, -_AHEAD:, 0] = y
    found: tuple[Array, Array] = draw.by_fault(
        {
            "target_leak": (late, y),
            "unnormalised_inputs": (x * np.float32(800) + np.float32(3000), y),
            "unnormalised_targets": (x, y * 500 + 2000),
            "shuffled_labels": (x, draw.numpy.permutation(y)),
            # `reshape` in place of a transposition.
            "wrong_axis": (np.moveaxis(x, 0, -1).reshape(x.shape).copy(), y),
        },
        (x, y),
    )
    return found


def _house(draw: Draw) -> Array:
    """Return energy and two measures of the weather, float32 [H, F]."""
    source, hours = draw.numpy, np.arange(_HOURS + _TIME + _AHEAD)
    warm = np.sin(2 * np.pi * hours / 12) + 0.3 * source.normal(size=len(hours))
    sun = np.maximum(np.sin(2 * np.pi * (hours - 2) / 12), 0)
    cook = (hours % 8 < 2) * source.uniform(1.0, 1.5)
    energy = cook - 0.9 * np.roll(warm, 2) + 0.6 * np.sin(2 * np.pi * hours / 30)
    energy = energy + draw.between(0.1, 0.25) * source.normal(size=len(hours))
    table = np.stack([energy, warm, sun], 1)
    standardised: Array = ((table - table.mean(0)) / table.std(0)).astype("float32")
    return standardised


def _windows(table: Array) -> tuple[Array, Array]:
    """Return windows float32 [N, T, F] and the energy after them [N, H]."""
    starts = np.arange(_HOURS)[:, None]
    return table[starts + np.arange(_TIME)], table[starts + _TIME + np.arange(_AHEAD), 0]


FAMILY = Family(
    _train,
    (
        *("target_leak", "unnormalised_inputs", "unnormalised_targets", "shuffled_labels"),
        *("wrong_axis", "duplicated_rows", "wrong_last_activation", "zero_init", "frozen_layers"),
        *("lr_too_low", "lr_too_high"),
    ),
    framework="keras",
    spent="2026-11-28",
)
