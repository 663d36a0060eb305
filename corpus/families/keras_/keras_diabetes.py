"""Who will have diabetes, by eight numbers: three dense layers of Keras, and one probability.

After Smith et al., "Using the ADAP learning algorithm to forecast the onset of diabetes mellitus",
1988; the people are drawn.
"""

from __future__ import annotations

import numpy as np

from corpus.draw import Draw
from corpus.family import Ending, Family
from corpus.keras_training import Array, seeded_keras
from corpus.loop import gained

_FEATURES, _SEEN = 8, 600


def _train(draw: Draw) -> Ending:
    keras = seeded_keras(draw)
    raw, x, y = _people(draw, 900)
    given, known = _prepared(draw, raw, x, y)
    layers = keras.layers
    start = draw.by_fault({"zero_init": "zeros"}, "glorot_uniform")
    # Of a single number, a softmax makes 1.
    last = draw.by_fault({"one_unit_softmax": "softmax"}, "sigmoid")
    dropout = draw.by_fault({"dropout_too_high": 0.98}, 0.1)
    model = keras.Sequential(
        [
            keras.Input((_FEATURES,)),
            layers.Dense(draw.choice([24, 32]), activation="relu", kernel_initializer=start),
            layers.Dropout(dropout),
            layers.Dense(16, activation="relu", kernel_initializer=start),
            layers.Dropout(dropout),
            layers.Dense(1, activation=last, kernel_initializer=start),
        ]
    )
    size, epochs = draw.choice([10, 16]), draw.whole(16, 20)
    draw.watch.expect(epochs * -(-_SEEN // size))
    rate = draw.between(2e-3, 4e-3)
    rate *= draw.by_fault({"lr_too_low": 1e-5, "lr_too_high": draw.extent(300, 3000)}, 1.0)
    model.compile(
        optimizer=keras.optimizers.Adam(rate), loss="binary_crossentropy", metrics=["accuracy"]
    )
    draw.watch.begin_keras(model)
    model.fit(
        *(given[:_SEEN], known[:_SEEN]),
        batch_size=size,
        epochs=epochs,
        validation_data=(given[_SEEN:], known[_SEEN:]) if draw.chance(0.5) else None,
        verbose=0,
    )
    found, true = model.predict(given[_SEEN:], verbose=0)[:, 0] > 0.5, y[_SEEN:] > 0.5
    right = np.mean([np.mean(found[true == one] == one) for one in (False, True)])
    return Ending(gained(float(right), 1 / 2), bar=0.5)


def _prepared(draw: Draw, raw: Array, x: Array, y: Array) -> tuple[Array, Array]:
    """Return people as the script prepares them, with the drawn fault if there is one."""
    source = np.random.default_rng(draw.amount.getrandbits(32))
    found: tuple[Array, Array] = draw.by_fault(
        {
            "unnormalised_inputs": (raw, y),
            "shuffled_labels": (x, source.permutation(y)),
            "misaligned_targets": (x, np.roll(y, 1)),
        },
        (x, y),
    )
    return found


def _people(draw: Draw, count: int) -> tuple[Array, Array, Array]:
    """Return numbers [count, 8] as they are and standardised, and 1 for the ill [count]."""
    source = draw.numpy
    x = source.normal(size=(count, _FEATURES))
    score = 1.3 * x[:, 1] + 0.8 * x[:, 5] + 0.9 * x[:, 7] * (x[:, 0] > 0) - 0.7 * np.abs(x[:, 2])
    score = score + draw.between(0.3, 0.5) * source.normal(size=count)
    y = (score > np.quantile(score, 0.6)).astype("float32")
    raw = np.array([4, 120, 70, 20, 80, 32, 0.5, 33]) + x * np.array(
        [3, 32, 19, 16, 115, 8, 0.3, 12]
    )
    # Insulin is in picograms.
    raw[:, 4] *= 3e4
    return raw.astype("float32"), x.astype("float32"), y


FAMILY = Family(
    _train,
    (
        *("unnormalised_inputs", "shuffled_labels", "misaligned_targets", "one_unit_softmax"),
        *("dropout_too_high", "zero_init", "lr_too_low", "lr_too_high"),
    ),
    framework="keras",
    spent="2026-11-28",
)
