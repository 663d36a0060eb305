"""Prices of flats, by two dense layers of Keras: a loss of squares, and early stopping.

After Chollet, "Deep learning with Python", Manning 2017, chapter 3; the flats are drawn.
"""

from __future__ import annotations

import numpy as np

from corpus.draw import Draw
from corpus.family import Ending, Family
from corpus.keras_training import Array, seeded_keras

_FEATURES, _SEEN = 9, 800


def _train(draw: Draw) -> Ending:
    keras = seeded_keras(draw)
    raw, x, y = _flats(draw, 1200)
    given, known = _prepared(draw, raw, x, y)
    width, layers = draw.choice([32, 48]), keras.layers
    start = draw.by_fault({"zero_init": "zeros"}, "he_normal")
    penalty = keras.regularizers.L2(draw.by_fault({"over_regularization": 300.0}, 1e-5))
    shared = {"kernel_initializer": start, "kernel_regularizer": penalty}
    # Standardised prices are negative, too.
    last = "sigmoid" if draw.has("wrong_output_activation") else None
    model = keras.Sequential(
        [
            keras.Input((_FEATURES,)),
            *(layers.Dense(width, activation="relu", **shared) for _ in range(2)),
            layers.Dense(1, activation=last, **shared),
        ]
    )
    size, epochs = draw.choice([16, 20]), draw.whole(12, 16)
    draw.watch.expect(epochs * -(-_SEEN // size))
    rate = draw.between(1e-3, 2e-3)
    rate *= draw.by_fault({"lr_too_low": 1e-5, "lr_too_high": draw.extent(300, 3000)}, 1.0)
    model.compile(optimizer=keras.optimizers.RMSprop(rate), loss="mse", metrics=["mae"])
    draw.watch.begin_keras(model)
    model.fit(
        *(given[:_SEEN], known[:_SEEN]),
        batch_size=size,
        epochs=epochs,
        validation_data=(given[_SEEN:], known[_SEEN:]),
        callbacks=[keras.callbacks.EarlyStopping(patience=5, restore_best_weights=True)],
        verbose=0,
    )
    found = model.predict(given[_SEEN:], verbose=0)[:, 0]
    true = (known if draw.has("unnormalised_targets") else y)[_SEEN:]
    left = ((found - true) ** 2).sum() / ((true - true.mean()) ** 2).sum()
    return Ending(float(1 - left), bar=0.6)


def _prepared(draw: Draw, raw: Array, x: Array, y: Array) -> tuple[Array, Array]:
    """Return flats as the script prepares them, with the drawn fault if there is one."""
    source = np.random.default_rng(draw.amount.getrandbits(32))
    few = np.arange(len(y))
    few[:_SEEN] %= 12
    found: tuple[Array, Array] = draw.by_fault(
        {
            "unnormalised_inputs": (raw, y),
            "unnormalised_targets": (x, 300000 + 90000 * y),
            "shuffled_labels": (x, source.permutation(y)),
            # A row was left out of one of two files.
            "misaligned_targets": (x, np.roll(y, 1)),
            "duplicated_rows": (x[few], y[few]),
        },
        (x, y),
    )
    return found


def _flats(draw: Draw, count: int) -> tuple[Array, Array, Array]:
    """Return features [count, F] as they are and standardised, and standardised prices [count]."""
    source = draw.numpy
    x = source.normal(size=(count, _FEATURES))
    price = 0.9 * x[:, 0] + 0.6 * np.abs(x[:, 1]) - 0.5 * x[:, 2] * (x[:, 0] > 0)
    price = price + 0.5 * np.tanh(2 * x[:, 3]) + draw.between(0.1, 0.3) * source.normal(size=count)
    scale = np.array([30.0, 4.0, 12.0, 900.0, 1.0, 7.0, 2e4, 0.3, 50.0])
    raw = (x + 3) * scale
    price = (price - price.mean()) / price.std()
    return raw.astype("float32"), x.astype("float32"), price.astype("float32")


FAMILY = Family(
    _train,
    (
        *("unnormalised_inputs", "unnormalised_targets", "shuffled_labels", "misaligned_targets"),
        *("duplicated_rows", "wrong_output_activation", "over_regularization", "zero_init"),
        *("lr_too_low", "lr_too_high"),
    ),
    framework="keras",
    spent="2026-11-28",
)
