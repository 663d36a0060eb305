"""Pets of two kinds in pictures: residual blocks of Keras, and one probability.

After the example "Image classification from scratch" of Keras; the pictures are drawn.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from corpus.draw import Draw
from corpus.family import Ending, Family
from corpus.keras_training import Array, seeded_keras
from corpus.loop import gained

_SIDE, _SEEN = 14, 700


def _train(draw: Draw) -> Ending:
    keras = seeded_keras(draw)
    x, y = _pictures(draw, 1000)
    given, known = _prepared(draw, x, y)
    seen, labels = given[:_SEEN], known[:_SEEN]
    model = _model(draw, keras)
    size, epochs = draw.choice([20, 28]), draw.whole(7, 9)
    draw.watch.expect(epochs * -(-_SEEN // size))
    rate = draw.between(2e-3, 4e-3)
    rate *= draw.by_fault({"lr_too_low": 1e-5, "lr_too_high": 3000.0}, 1.0)
    if draw.has("wrong_loss"):
        # A loss for several classes, with one output.
        loss: Any = keras.losses.CategoricalCrossentropy()
    else:
        loss = keras.losses.BinaryCrossentropy(from_logits=False)
    model.compile(optimizer=keras.optimizers.Adam(rate), loss=loss, metrics=["accuracy"])
    draw.watch.begin_keras(model)
    model.fit(
        *(seen, labels[:, None]),
        batch_size=size,
        epochs=epochs,
        shuffle=True,
        validation_data=(given[_SEEN:], known[_SEEN:, None]) if draw.chance(0.7) else None,
        verbose=0,
    )
    found = model.predict(given[_SEEN:], verbose=0)[:, 0] > 0.5
    true = y[_SEEN:] > 0.5
    right = np.mean([np.mean(found[true == one] == one) for one in (False, True)])
    return Ending(gained(float(right), 1 / 2), bar=0.6)


def _model(draw: Draw, keras: Any) -> Any:
    layers, width = keras.layers, draw.choice([10, 14])
    dropout = draw.by_fault({"dropout_too_high": 0.995}, 0.2)
    shared = {
        "padding": "same",
        "kernel_initializer": draw.by_fault({"zero_init": "zeros"}, "he_normal"),
    }
    entered = keras.Input((_SIDE, _SIDE, 1))
    told = layers.Conv2D(width, 3, strides=2, **shared)(entered)
    told = layers.BatchNormalization(momentum=0.8)(told)
    told = layers.Activation("relu")(told)
    before = told
    told = layers.Conv2D(width, 3, **shared)(told)
    told = layers.BatchNormalization(momentum=0.8)(told)
    told = layers.Activation("relu")(layers.add([told, before]))
    told = layers.MaxPooling2D(2, padding="same")(told)
    told = layers.Dropout(dropout)(layers.Flatten()(told))
    # A softmax of one number is 1.
    last = "softmax" if draw.has("one_unit_softmax") else "sigmoid"
    return keras.Model(entered, layers.Dense(1, activation=last)(told))


def _prepared(draw: Draw, x: Array, y: Array) -> tuple[Array, Array]:
    """Return pictures as the script prepares them, with the drawn fault if there is one."""
    source = np.random.default_rng(draw.amount.getrandbits(32))
    wrong = source.random(len(y)) < 0.45
    found: tuple[Array, Array] = draw.by_fault(
        {
            "shuffled_labels": (x, source.permutation(y)),
            "label_noise": (x, np.where(wrong, 1 - y, y)),
            # The file has the number of the picture last.
            "wrong_axis": (np.moveaxis(x, 0, -1).reshape(x.shape).copy(), y),
            # A folder of one kind was empty.
            "single_label": (x, np.zeros_like(y)),
        },
        (x, y),
    )
    return found


def _pictures(draw: Draw, count: int) -> tuple[Array, Array]:
    """Return pictures of bytes float32 [count, 14, 14, 1], and 1 for one kind [count]."""
    source = draw.numpy
    y = source.integers(0, 2, count)
    place = np.arange(_SIDE) - (_SIDE - 1) / 2
    across = place - source.normal(size=(count, 1, 1))
    down = place[:, None] - source.normal(size=(count, 1, 1))
    head = np.hypot(across, down) < 4.5
    # Ears that stand, and ears that hang.
    standing = (np.abs(np.abs(across) - 3) < 1.3) & (down < -3) & (down > -6.5)
    hanging = (np.abs(np.abs(across) - 5) < 1.3) & (down > -2) & (down < 3)
    ears = np.where((y == 1)[:, None, None], standing, hanging)
    bright = (
        60
        + 110.0 * (head | ears)
        + 50 * draw.between(0.6, 1.0) * source.normal(size=(count, _SIDE, _SIDE))
    )
    return bright[..., None].astype("float32"), y.astype("float32")


FAMILY = Family(
    _train,
    (
        *("wrong_axis", "shuffled_labels", "label_noise", "single_label"),
        *("one_unit_softmax", "wrong_loss", "dropout_too_high", "zero_init", "lr_too_low"),
        *("lr_too_high",),
    ),
    framework="keras",
    spent="2026-11-28",
)
