"""Whether a mushroom is edible, from its picture: layers of Keras that turn, scale and normalise.

After Ioffe and Szegedy, "Batch normalization", ICML 2015, and Chollet's "Image classification from
scratch", keras.io 2020; the mushrooms are drawn.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from corpus.draw import Draw
from corpus.family import Ending, Family
from corpus.keras_training import Array, seeded_keras

_SIDE, _SEEN = 12, 640


def _train(draw: Draw) -> Ending:
    keras = seeded_keras(draw)
    x, y = _mushrooms(draw, 900)
    seen, known = _spoilt(draw, x[:_SEEN], y[:_SEEN])
    model = _model(draw, keras)
    size, epochs = draw.choice([20, 32]), draw.whole(8, 10)
    draw.watch.expect(epochs * _SEEN // size)
    rate = draw.between(0.03, 0.06)
    rate *= draw.by_fault({"lr_too_high": 3000.0}, 1.0)
    schedule = rate
    if draw.chance(0.5):
        schedule = keras.optimizers.schedules.CosineDecay(rate, epochs * _SEEN // size)
    model.compile(
        optimizer=keras.optimizers.SGD(schedule, momentum=0.9),
        loss="binary_crossentropy",
        metrics=["accuracy", keras.metrics.AUC(name="auc")],
    )
    draw.watch.begin_keras(model)
    model.fit(
        *(seen, known),
        batch_size=size,
        epochs=epochs,
        validation_data=(x[_SEEN:], y[_SEEN:]) if draw.chance(0.7) else None,
        class_weight=draw.by_fault({"weights_reversed": {0: 50.0, 1: 0.02}}, {0: 1.0, 1: 1.0}),
        verbose=0,
    )
    found = model.predict(x[_SEEN:], verbose=0)[:, 0] > 0.5
    held = y[_SEEN:, 0] > 0.5
    right = (found[held].mean() + (~found)[~held].mean()) / 2
    return Ending(float(2 * right - 1), bar=0.6)


def _model(draw: Draw, keras: Any) -> Any:
    layers, width = keras.layers, draw.choice([8, 12])
    # Bytes are divided by 255: twice, and nothing is left of them.
    scale = 1 / 255**2 if draw.has("normalised_twice") else 1 / 255
    plain = draw.concerns("normalised_twice") or draw.chance(0.3)
    inner: list[Any] = []
    for wide in (width, 2 * width):
        inner.append(layers.Conv2D(wide, 3, padding="same", use_bias=plain))
        if not plain:
            inner.append(layers.BatchNormalization(momentum=0.8))
        inner += [layers.ReLU(), layers.MaxPooling2D(2)]
    # One unit of a softmax is always one.
    last = "softmax" if draw.has("one_unit_softmax") else "sigmoid"
    return keras.Sequential(
        [
            keras.Input((_SIDE, _SIDE, 3)),
            *(layers.RandomFlip("horizontal"), layers.Rescaling(scale), *inner, layers.Flatten()),
            *(layers.Dense(16, activation="relu"), layers.Dense(1, activation=last)),
        ]
    )


def _spoilt(draw: Draw, x: Array, y: Array) -> tuple[Array, Array]:
    """Return pictures with the drawn fault, if there is one."""
    return draw.by_fault(
        {
            # Blue comes first where another library reads the files.
            "bands_reversed": (x[..., ::-1].copy(), y),
            "shuffled_labels": (x, draw.numpy.permutation(y)),
        },
        (x, y),
    )


def _mushrooms(draw: Draw, count: int) -> tuple[Array, Array]:
    """Return bytes float32 [count, 12, 12, 3] and 1 for what can be eaten [count, 1]."""
    source = draw.numpy
    y = source.integers(0, 2, count)
    place = np.arange(_SIDE) - (_SIDE - 1) / 2
    across = place + source.normal(0, 1, (count, 1, 1))
    down = place[:, None] + source.normal(0, 1, (count, 1, 1))
    cap = np.hypot(across, 1.6 * down) < source.uniform(3.5, 4.5, (count, 1, 1))
    # Red ones with light dots are not, and neither are dotted ones whose colour is in between.
    dots = source.random((count, _SIDE, _SIDE)) < 0.3 * (1 - y)[:, None, None]
    red = source.normal(0.35 * (1 - y) + 0.2, 0.1)[:, None, None]
    colour = np.stack([0.2 + red, 0.35 + 0 * red, 0.55 - red], -1)
    x = 0.3 + cap[..., None] * (colour + 0.3 * dots[..., None])
    x = x + draw.between(0.1, 0.15) * source.normal(size=x.shape)
    return (255 * x.clip(0, 1)).astype("float32"), y[:, None].astype("float32")


FAMILY = Family(
    _train,
    (
        *("bands_reversed", "weights_reversed", "normalised_twice"),
        *("one_unit_softmax", "shuffled_labels"),
        "lr_too_high",
    ),
    framework="keras",
    spent="2026-11-27",
)
