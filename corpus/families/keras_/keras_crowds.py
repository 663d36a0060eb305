"""How many dots are in a picture: a convolutional network of Keras with a Poisson loss.

After Zhang et al., "Single-image crowd counting via multi-column convolutional neural network",
CVPR 2016, of whose densities the sums are trained.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from corpus.draw import Draw
from corpus.family import Ending, Family
from corpus.keras_training import Array, seeded_keras

_SIDE, _KEPT = 20, 900


def _train(draw: Draw) -> Ending:
    keras = seeded_keras(draw)
    x, y = _pictures(draw, 1200)
    seen, known = x[:_KEPT], y[:_KEPT]
    if draw.has("misaligned_targets"):
        known = draw.numpy.permutation(known)
    if draw.has("unnormalised_targets"):
        known = 1e4 * known
    if draw.has("unnormalised_inputs"):
        seen, x = 1e5 * seen, 1e5 * x
    if draw.has("constant_inputs"):
        seen = np.zeros_like(seen)
    if draw.has("ruinous_augmentation"):
        seen = seen + 30 * draw.numpy.normal(size=seen.shape).astype("float32")
    model = _model(draw, keras)
    size, epochs = draw.choice([20, 30]), draw.whole(12, 18)
    draw.watch.expect(epochs * _KEPT // size)
    rate = draw.between(2e-3, 4e-3)
    rate *= draw.by_fault({"lr_too_low": draw.extent(1e-5, 1e-4), "lr_too_high": 1000.0}, 1.0)
    optimizer = keras.optimizers.Nadam(rate, clipnorm=draw.choice([None, 10.0]))
    model.compile(optimizer=optimizer, loss=keras.losses.Poisson(), metrics=["mae"])
    if draw.has("frozen_layers"):
        # For a first phase, of which there was no second.
        for layer in model.layers[:-1]:
            layer.trainable = False
        model.compile(optimizer=optimizer, loss=keras.losses.Poisson(), metrics=["mae"])
    draw.watch.begin_keras(model)
    callbacks = []
    if draw.chance(0.4):
        callbacks = [keras.callbacks.ReduceLROnPlateau(monitor="loss", patience=3)]
    held = (x[_KEPT:], y[_KEPT:])
    model.fit(
        *(seen, known),
        batch_size=size,
        epochs=epochs,
        validation_data=held if draw.chance(0.6) else None,
        callbacks=callbacks,
        verbose=0,
    )
    found = model.predict(held[0], verbose=0)[:, 0]
    error = float(np.square(found - held[1][:, 0]).mean() / held[1].var())
    return Ending(max(-1.0, 1 - error), bar=0.6)


def _model(draw: Draw, keras: Any) -> Any:
    layers, width = keras.layers, draw.choice([8, 12])
    first = "zeros" if draw.has("zero_init") else "he_uniform"
    dropout = 0.97 if draw.has("dropout_too_high") else 0.0
    return keras.Sequential(
        [
            keras.Input((_SIDE, _SIDE, 1)),
            layers.Conv2D(width, 5, activation="relu", kernel_initializer=first),
            layers.MaxPooling2D(2),
            layers.Conv2D(2 * width, 3, activation="relu", kernel_initializer=first),
            layers.GlobalAveragePooling2D(),
            layers.Dropout(dropout),
            layers.Dense(24, activation="relu", kernel_initializer=first),
            layers.Dense(1, activation="softplus", kernel_initializer=first),
        ]
    )


def _pictures(draw: Draw, count: int) -> tuple[Array, Array]:
    """Return pictures float32 [count, 20, 20, 1] and numbers of dots float32 [count, 1]."""
    source = draw.numpy
    numbers = source.integers(0, 13, count)
    pictures = draw.between(0.1, 0.2) * source.normal(size=(count, _SIDE + 2, _SIDE + 2))
    for picture, number in zip(pictures, numbers, strict=True):
        for row, column in source.integers(1, _SIDE - 1, (number, 2)):
            picture[row + 1, column : column + 3] += 1.0
            picture[row : row + 3, column + 1] += 1.0
    return pictures[:, 1:-1, 1:-1, None].astype("float32"), numbers[:, None].astype("float32")


FAMILY = Family(
    _train,
    (
        *("misaligned_targets", "unnormalised_targets", "unnormalised_inputs", "constant_inputs"),
        *("ruinous_augmentation", "lr_too_low", "lr_too_high", "frozen_layers"),
        *("zero_init", "dropout_too_high"),
    ),
    framework="keras",
    spent="2026-11-27",
)
