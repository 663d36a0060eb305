"""In which range the price of a phone is: one-hot labels, batch norm and penalties, with Keras.

After a data set of many tutorials, "Mobile price classification"; the phones are drawn.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from corpus.draw import Draw
from corpus.family import Ending, Family
from corpus.keras_training import Array, seeded_keras
from corpus.loop import gained

_FEATURES, _RANGES, _SEEN = 14, 4, 900


def _train(draw: Draw) -> Ending:
    keras = seeded_keras(draw)
    x, y = _phones(draw, 1300)
    given, known = _prepared(draw, x, y)
    size, epochs = draw.choice([20, 32]), draw.whole(14, 18)
    seen, labels = given[:_SEEN], np.eye(_RANGES, dtype="float32")[known[:_SEEN]]
    valid, valid_labels = given[_SEEN:], np.eye(_RANGES, dtype="float32")[known[_SEEN:]]
    draw.watch.expect(epochs * -(-_SEEN // size))
    model = _model(draw, keras)
    rate = draw.between(3e-3, 6e-3)
    rate *= draw.by_fault({"lr_too_low": 1e-5, "lr_too_high": draw.extent(300, 3000)}, 1.0)
    model.compile(
        optimizer=keras.optimizers.Adam(rate),
        loss="categorical_crossentropy",
        metrics=["accuracy"],
    )
    draw.watch.begin_keras(model)
    model.fit(
        *(seen, labels),
        batch_size=size,
        epochs=epochs,
        validation_data=(valid, valid_labels),
        verbose=0,
    )
    found, true = model.predict(valid, verbose=0).argmax(1), y[_SEEN:]
    right = np.mean([np.mean(found[true == one] == one) for one in range(_RANGES)])
    return Ending(gained(float(right), 1 / _RANGES), bar=0.5)


def _model(draw: Draw, keras: Any) -> Any:
    layers = keras.layers
    penalty = keras.regularizers.L2(draw.by_fault({"over_regularization": 20.0}, 1e-4))
    width = draw.choice([24, 32])
    trainable = not draw.has("frozen_layers")
    inputs = keras.Input((_FEATURES,))
    x = layers.Dense(width, kernel_regularizer=penalty, trainable=trainable)(inputs)
    if not draw.concerns("unnormalised_inputs"):
        x = layers.BatchNormalization(trainable=trainable)(x)
    x = layers.Activation("relu")(x)
    x = layers.Dropout(draw.by_fault({"dropout_too_high": 0.98}, 0.1))(x)
    x = layers.Dense(16, activation="relu", kernel_regularizer=penalty, trainable=trainable)(x)
    # The loss expects probabilities.
    last = draw.by_fault({"missing_softmax": "linear"}, "softmax")
    return keras.Model(inputs, layers.Dense(_RANGES, activation=last)(x))


def _prepared(draw: Draw, x: Array, y: Array) -> tuple[Array, Array]:
    """Return phones as the script prepares them, with the drawn fault if there is one."""
    source = np.random.default_rng(draw.amount.getrandbits(32))
    scale = np.where(np.arange(_FEATURES) % 3 == 0, 5000, 1).astype("float32")
    found: tuple[Array, Array] = draw.by_fault(
        {
            # Megabytes, milliampere-hours and gigahertz.
            "unnormalised_inputs": (scale * (x + 3), y),
            "shuffled_labels": (x, source.permutation(y)),
            "misaligned_targets": (x, np.roll(y, 1)),
            "wrong_axis": (x.T.reshape(x.shape), y),
        },
        (x, y),
    )
    return found


def _phones(draw: Draw, count: int) -> tuple[Array, Array]:
    """Return standardised features float32 [count, F] and ranges int64 [count]."""
    source = draw.numpy
    x = source.normal(size=(count, _FEATURES))
    price = 1.6 * x[:, 0] + 0.8 * x[:, 1] + 0.7 * np.abs(x[:, 2]) + 0.5 * x[:, 3] * x[:, 4]
    price = price + draw.between(0.2, 0.4) * source.normal(size=count)
    y = np.searchsorted(np.quantile(price, [0.25, 0.5, 0.75]), price)
    return x.astype("float32"), y.astype("int64")


FAMILY = Family(
    _train,
    (
        *("shuffled_labels", "misaligned_targets", "wrong_axis", "over_regularization"),
        *("frozen_layers", "missing_softmax", "dropout_too_high", "unnormalised_inputs"),
        *("lr_too_low", "lr_too_high"),
    ),
    framework="keras",
)
