"""The next level of a wave, by dilated causal convolutions with Keras and a `GradientTape`.

After van den Oord et al., "WaveNet: a generative model for raw audio", 2016.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from corpus.draw import Draw
from corpus.family import Ending, Family
from corpus.keras_training import Array, seeded_keras

_LENGTH, _LEVELS, _KEPT = 48, 16, 500


def _train(draw: Draw) -> Ending:
    keras = seeded_keras(draw)
    import tensorflow as tf

    waves, levels = _waves(draw, 700)
    seen, after = waves[:_KEPT, :-1], levels[:_KEPT, 1:]
    if draw.has("misaligned_targets"):
        after = draw.numpy.permutation(after)
    if draw.has("unshifted_targets"):
        after = levels[:_KEPT, :-1]
    if draw.has("constant_inputs"):
        seen = np.zeros_like(seen)
    model = _model(draw, keras)
    size, epochs = draw.choice([20, 25]), draw.whole(12, 18)
    per_epoch = _KEPT // size
    draw.watch.expect(epochs * per_epoch)
    rate = draw.between(4e-3, 8e-3)
    rate *= draw.by_fault({"lr_too_low": draw.extent(1e-5, 1e-4), "lr_too_high": 1000.0}, 1.0)
    optimizer = keras.optimizers.RMSprop(rate / 2)
    draw.watch.begin_keras(model, None, optimizer)
    sign = -1.0 if draw.has("wrong_sign") else 1.0
    weights = model.trainable_variables
    if draw.has("not_in_optimizer"):
        weights = weights[-1:]

    @tf.function  # type: ignore[untyped-decorator]
    def train_step(x: Any, y: Any) -> Any:
        with tf.GradientTape() as tape:
            scores = model(x, training=True)
            loss = tf.nn.sparse_softmax_cross_entropy_with_logits(y, scores)
            loss = sign * tf.reduce_mean(loss)
        optimizer.apply(tape.gradient(loss, weights), weights)
        return loss

    reports = draw.chance(0.6)
    for _ in range(epochs):
        order = draw.numpy.permutation(_KEPT)
        for rows in order[: per_epoch * size].reshape(per_epoch, size):
            chosen = np.arange(3) if draw.has("same_batch") else rows
            train_step(tf.constant(seen[chosen]), tf.constant(after[chosen]))
        if reports:
            with draw.watch.evaluating():
                draw.watch.metric("val_accuracy", _right(model, waves, levels))
    usual = np.bincount(levels[_KEPT:, -1], minlength=_LEVELS).max() / len(levels[_KEPT:])
    return Ending((_right(model, waves, levels) - usual) / (1 - usual), bar=0.35)


def _right(model: Any, waves: Array, levels: Array) -> float:
    """Return how often the last level of a held-out wave is found, or the one beside it."""
    shown = waves[_KEPT:, :-1].copy()
    found = np.asarray(model(shown, training=False))[:, -1].argmax(1)
    return float(np.mean(np.abs(found - levels[_KEPT:, -1]) <= 1))


def _model(draw: Draw, keras: Any) -> Any:
    layers, width = keras.layers, draw.choice([12, 16])
    first = "zeros" if draw.has("zero_init") else "glorot_uniform"
    inputs = keras.Input((_LENGTH - 1, 1))
    inner = layers.Conv1D(width, 1, kernel_initializer=first)(inputs)
    padding = "same" if draw.has("no_causal_mask") else "causal"
    for dilation in (1, 2, 4):
        settings = {"padding": padding, "dilation_rate": dilation, "kernel_initializer": first}
        level = layers.Conv1D(width, 3, activation="tanh", **settings)(inner)
        gate = layers.Conv1D(width, 3, activation="sigmoid", **settings)(inner)
        inner = layers.Add()([inner, layers.Multiply()([level, gate])])
    return keras.Model(inputs, layers.Conv1D(_LEVELS, 1, kernel_initializer=first)(inner))


def _waves(draw: Draw, count: int) -> tuple[Array, Array]:
    """Return waves float32 [count, length, 1], and the levels int32 [count, length] of them."""
    source = draw.numpy
    place = np.arange(_LENGTH)
    pitch = source.uniform(0.08, 0.16, (count, 1))
    phase = source.uniform(0, 1, (count, 1))
    waves = np.sin(2 * math.pi * (pitch * place + phase))
    waves += 0.4 * np.sin(4 * math.pi * (pitch * place + 2 * phase))
    waves += draw.between(0.01, 0.03) * source.normal(size=waves.shape)
    levels = np.clip((waves + 1.4) / 2.8 * _LEVELS, 0, _LEVELS - 1).astype("int32")
    return waves[..., None].astype("float32"), levels


FAMILY = Family(
    _train,
    (
        *("misaligned_targets", "unshifted_targets", "no_causal_mask", "constant_inputs"),
        *("lr_too_low", "lr_too_high", "wrong_sign", "not_in_optimizer", "same_batch"),
        "zero_init",
    ),
    framework="keras",
    spent="2026-11-27",
)
