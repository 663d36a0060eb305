"""Whether a protein binds to a strand of DNA: convolutions of Keras, and callbacks of `fit`.

After Alipanahi et al., "Predicting the sequence specificities of DNA- and RNA-binding proteins by
deep learning", Nature Biotechnology 2015.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from corpus.draw import Draw
from corpus.family import Ending, Family
from corpus.keras_training import Array, seeded_keras

_LENGTH, _SEEN = 40, 1000


def _train(draw: Draw) -> Ending:
    keras = seeded_keras(draw)
    x, y = _strands(draw, 1400)
    seen, known = _spoilt(draw, x[:_SEEN], y[:_SEEN])
    model = _model(draw, keras)
    size, epochs = draw.choice([25, 40]), draw.whole(8, 10)
    draw.watch.expect(epochs * _SEEN // size)
    rate = draw.between(4e-3, 8e-3)
    rate *= draw.by_fault({"lr_too_low": draw.extent(1e-6, 1e-5), "lr_too_high": 3000.0}, 1.0)
    model.compile(
        optimizer=keras.optimizers.Adam(rate),
        loss="binary_crossentropy",
        metrics=["accuracy"],
    )
    draw.watch.begin_keras(model)
    model.fit(
        *(seen, known),
        batch_size=size,
        epochs=epochs,
        validation_data=(x[_SEEN:], y[_SEEN:]),
        callbacks=[keras.callbacks.ReduceLROnPlateau(patience=3, factor=0.5)],
        verbose=0,
    )
    found = model.predict(x[_SEEN:], verbose=0)[:, 0] > 0.5
    held = y[_SEEN:, 0] > 0.5
    right = (found[held].mean() + (~found)[~held].mean()) / 2
    return Ending(float(2 * right - 1), bar=0.55)


def _model(draw: Draw, keras: Any) -> Any:
    layers, width = keras.layers, draw.choice([16, 24])
    first = {"kernel_initializer": "zeros"} if draw.has("zero_init") else {}
    dropout = draw.by_fault({"dropout_too_high": 0.98}, draw.choice([0.0, 0.2]))
    # One unit of a softmax is always one.
    last = "softmax" if draw.has("one_unit_softmax") else "sigmoid"
    # A scan of both directions is not needed: the motif has one.
    return keras.Sequential(
        [
            keras.Input((_LENGTH, 4)),
            layers.Conv1D(width, 8, activation="relu", **first),
            layers.GlobalMaxPooling1D(),
            layers.Dropout(dropout),
            layers.Dense(16, activation="relu", **first),
            layers.Dense(1, activation=last, **first),
        ]
    )


def _spoilt(draw: Draw, x: Array, y: Array) -> tuple[Array, Array]:
    """Return the strands with the drawn fault, if there is one."""
    if draw.has("shuffled_labels"):
        return x, draw.numpy.permutation(y)
    if draw.has("time_reversed"):
        # The other strand was read.
        return x[:, ::-1, ::-1].copy(), y
    if draw.has("wrong_axis"):
        return x.transpose(1, 2, 0).reshape(x.shape), y
    if draw.has("constant_inputs"):
        return np.full_like(x, 0.25), y
    return x, y


def _strands(draw: Draw, count: int) -> tuple[Array, Array]:
    """Return strands float32 [count, 40, 4], one-hot, and if they have the motif [count, 1]."""
    source = draw.numpy
    bases = source.integers(0, 4, (count, _LENGTH))
    has = source.random(count) < 0.5
    # Different from its reverse complement.
    motif = np.array([0, 1, 1, 0, 0, 1, 2, 0])
    for strand, one in zip(bases, has, strict=True):
        place = source.integers(0, _LENGTH - len(motif))
        strand[place : place + len(motif)] = motif if one else source.permutation(motif)
    missed = source.random(bases.shape) < draw.between(0.01, 0.03)
    bases = np.where(missed, source.integers(0, 4, bases.shape), bases)
    return np.eye(4, dtype="float32")[bases], has[:, None].astype("float32")


FAMILY = Family(
    _train,
    (
        *("one_unit_softmax", "time_reversed", "wrong_axis", "shuffled_labels"),
        *("constant_inputs", "dropout_too_high", "lr_too_low", "lr_too_high", "zero_init"),
    ),
    framework="keras",
    spent="2026-11-27",
)
