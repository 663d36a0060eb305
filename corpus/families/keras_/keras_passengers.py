"""How many passengers fly next month, from a year before: an LSTM of Keras, and windows.

After Box and Jenkins, "Time series analysis: forecasting and control", 1976, and many tutorials;
the months are drawn.
"""

from __future__ import annotations

import numpy as np

from corpus.draw import Draw
from corpus.family import Ending, Family
from corpus.keras_training import Array, seeded_keras

_TIME, _SEEN, _MONTHS = 12, 360, 500


def _train(draw: Draw) -> Ending:
    keras = seeded_keras(draw)
    x, y = _windows(draw)
    given, known = _prepared(draw, x, y)
    layers = keras.layers
    start = draw.by_fault({"zero_init": "zeros"}, "glorot_uniform")
    # Scaled numbers are between -1 and 1.
    last = draw.by_fault({"wrong_output_activation": "relu"}, "linear")
    model = keras.Sequential(
        [
            keras.Input((_TIME, 1)),
            layers.LSTM(draw.choice([16, 24]), kernel_initializer=start),
            layers.Dense(1, activation=last, kernel_initializer=start),
        ]
    )
    size, epochs = draw.choice([10, 12]), draw.whole(12, 15)
    draw.watch.expect(epochs * _SEEN // size)
    rate = draw.between(4e-3, 8e-3)
    rate *= draw.by_fault({"lr_too_low": 1e-5, "lr_too_high": draw.extent(300, 3000)}, 1.0)
    model.compile(optimizer=keras.optimizers.Adam(rate), loss="mean_squared_error")
    draw.watch.begin_keras(model)
    model.fit(
        *(given[:_SEEN], known[:_SEEN]),
        batch_size=size,
        epochs=epochs,
        validation_data=(given[_SEEN:], known[_SEEN:]),
        verbose=0,
    )
    found = model.predict(given[_SEEN:], verbose=0)
    true = (known if draw.has("unnormalised_targets") else y)[_SEEN:]
    left = ((found - true) ** 2).sum() / ((true - true.mean()) ** 2).sum()
    return Ending(float(1 - left), bar=0.6)


def _prepared(draw: Draw, x: Array, y: Array) -> tuple[Array, Array]:
    """Return windows as the script prepares them, with the drawn fault if there is one."""
    source = np.random.default_rng(draw.amount.getrandbits(32))
    found: tuple[Array, Array] = draw.by_fault(
        {
            # Passengers, and not what is left of their scale.
            "unnormalised_inputs": (30000 + 9000 * x, y),
            "unnormalised_targets": (x, 30000 + 9000 * y),
            "shuffled_labels": (x, source.permutation(y)),
            # Half a year later, by a mistake in the index.
            "wrong_shift": (x, np.roll(y, -5, 0)),
            "constant_inputs": (np.zeros_like(x), y),
        },
        (x, y),
    )
    return found


def _windows(draw: Draw) -> tuple[Array, Array]:
    """Return windows float32 [N, T, 1], and the months after them [N, 1], of -1 to 1."""
    source = draw.numpy
    month = np.arange(_MONTHS + _TIME)
    amount = 1 + 0.5 * np.sin(month / 40) + 0.2 * np.sin(month / 23 + 1)
    flown = amount * (1 + 0.5 * np.sin(2 * np.pi * month / 12) ** 3)
    flown = flown + draw.between(0.04, 0.08) * source.normal(size=len(month))
    flown = 2 * (flown - flown.min()) / (flown.max() - flown.min()) - 1
    windows = np.lib.stride_tricks.sliding_window_view(flown, _TIME)[:-1]
    return windows[:, :, None].astype("float32"), flown[_TIME:, None].astype("float32")


FAMILY = Family(
    _train,
    (
        *("unnormalised_inputs", "unnormalised_targets", "shuffled_labels", "wrong_shift"),
        *("constant_inputs", "wrong_output_activation", "lr_too_low", "lr_too_high"),
    ),
    framework="keras",
    spent="2026-11-28",
)
