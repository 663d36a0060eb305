"""Signals without their noise, by convolutions with Keras and a `GradientTape`.

After Zhang et al., "Beyond a Gaussian denoiser", IEEE Transactions on Image Processing 2017: the
network predicts the noise, which is subtracted.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from corpus.draw import Draw
from corpus.family import Ending, Family
from corpus.keras_training import Array, seeded_keras

_LENGTH = 64


def _train(draw: Draw) -> Ending:
    keras = seeded_keras(draw)
    import tensorflow as tf

    noisy, clean = _signals(draw, 1200)
    kept = 900
    seen, wanted = noisy[:kept], clean[:kept]
    if draw.has("misaligned_targets"):
        # `shuffle` of one of two data sets.
        wanted = draw.numpy.permutation(wanted)
    if draw.has("levels_swapped"):
        seen, wanted = wanted, seen
    model = _model(draw, keras)
    size, epochs = draw.choice([16, 32]), draw.whole(8, 14)
    per_epoch = kept // size
    draw.watch.expect(epochs * per_epoch)
    rate = draw.between(1e-3, 3e-3)
    rate *= draw.extent(1e-5, 1e-3) if draw.has("lr_too_low") else 1.0
    rate *= draw.extent(300, 3000) if draw.has("lr_too_high") else 1.0
    steps = epochs * per_epoch
    decay = keras.optimizers.schedules.CosineDecay(rate, steps, alpha=0.05)
    optimizer = keras.optimizers.Adam(decay if draw.chance(0.5) else rate)
    loss_fn = keras.losses.MeanSquaredError()
    draw.watch.begin_keras(model, loss_fn, optimizer)
    sign = -1.0 if draw.has("wrong_sign") else 1.0
    weights = model.trainable_variables
    if draw.has("not_in_optimizer"):
        weights = weights[-2:]

    @tf.function  # type: ignore[untyped-decorator]
    def train_step(x: Any, y: Any) -> Any:
        with tf.GradientTape() as tape:
            loss = sign * loss_fn(y, x - model(x, training=True))
        optimizer.apply_gradients(zip(tape.gradient(loss, weights), weights, strict=True))
        return loss

    reports = draw.chance(0.6)
    for _ in range(epochs):
        order = draw.numpy.permutation(kept)
        for start in range(0, per_epoch * size, size):
            rows = order[:size] if draw.has("same_batch") else order[start : start + size]
            if draw.has("same_batch"):
                rows = np.arange(4)
            train_step(tf.constant(seen[rows]), tf.constant(wanted[rows]))
        if reports:
            with draw.watch.evaluating():
                draw.watch.metric("val_mse", _error(model, noisy[kept:], clean[kept:]))
    left = _error(model, noisy[kept:], clean[kept:])
    return Ending(1 - left / float(np.square(noisy[kept:] - clean[kept:]).mean()), bar=0.55)


def _error(model: Any, noisy: Array, clean: Array) -> float:
    """Return the mean squared error of signals without the predicted noise."""
    return float(np.square(noisy - np.asarray(model(noisy, training=False)) - clean).mean())


def _model(draw: Draw, keras: Any) -> Any:
    layers, width, depth = keras.layers, draw.choice([12, 16]), draw.choice([2, 3])
    normalised = draw.chance(0.4)
    initializer = "zeros" if draw.has("zero_init") else "he_normal"
    inner = inputs = keras.Input((_LENGTH, 1))
    for _ in range(depth):
        inner = layers.Conv1D(width, 9, padding="same", kernel_initializer=initializer)(inner)
        if normalised:
            inner = layers.BatchNormalization(momentum=0.9)(inner)
        inner = layers.Activation("relu")(inner)
    # A noise of one sign only cannot be what is left out.
    activation = "relu" if draw.has("wrong_output_activation") else None
    noise = layers.Conv1D(
        1, 9, padding="same", kernel_initializer=initializer, activation=activation
    )(inner)
    return keras.Model(inputs, noise)


def _signals(draw: Draw, count: int) -> tuple[Array, Array]:
    """Return noisy and clean signals float32 [count, length, 1]: sums of two slow waves."""
    source = draw.numpy
    place = np.arange(_LENGTH) / _LENGTH
    clean = np.zeros((count, _LENGTH))
    for _ in range(2):
        pitch, phase = source.uniform(1, 4, (count, 1)), source.uniform(0, 1, (count, 1))
        clean += source.uniform(0.5, 1, (count, 1)) * np.sin(2 * math.pi * (pitch * place + phase))
    noisy = clean + draw.between(0.5, 0.8) * source.normal(size=clean.shape)
    return noisy.astype("float32")[..., None], clean.astype("float32")[..., None]


FAMILY = Family(
    _train,
    (
        *("misaligned_targets", "levels_swapped", "wrong_output_activation", "same_batch"),
        *("lr_too_low", "lr_too_high", "wrong_sign", "not_in_optimizer", "zero_init"),
    ),
    framework="keras",
    spent="2026-11-26",
)
