"""Clothes with a hole, which is filled: a convolutional network of Keras and a `GradientTape`.

After Pathak et al., "Context encoders: feature learning by inpainting", CVPR 2016, with the error
of the hole weighted more.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from corpus.data.fashion import clothes
from corpus.draw import Draw
from corpus.family import Ending, Family
from corpus.keras_training import Array, seeded_keras

_SIDE, _HOLE, _SEEN = 14, 5, 1500


def _train(draw: Draw) -> Ending:
    keras = seeded_keras(draw)
    import tensorflow as tf

    every = clothes(1900)[0].numpy().transpose(0, 2, 3, 1)
    seen, held = every[:_SEEN], every[_SEEN:]
    holes, held_holes = _holes(draw, _SEEN), _holes(draw, len(held))
    factor = 1e4 if draw.has("unnormalised_inputs") else 1.0
    model = _model(draw, keras)
    size, epochs = draw.choice([25, 30]), draw.whole(8, 12)
    per_epoch = _SEEN // size
    draw.watch.expect(epochs * per_epoch)
    rate = draw.between(2e-3, 4e-3)
    rate *= draw.by_fault({"lr_too_low": draw.extent(1e-6, 1e-5), "lr_too_high": 1000.0}, 1.0)
    optimizer = keras.optimizers.Adam(rate)
    draw.watch.begin_keras(model, None, optimizer)
    sign = -1.0 if draw.has("wrong_sign") else 1.0
    weights = model.trainable_variables[-2:] if draw.has("not_in_optimizer") else None

    @tf.function  # type: ignore[untyped-decorator]
    def train_step(told: Any, hole: Any, wanted: Any) -> Any:
        with tf.GradientTape() as tape:
            error = tf.abs(model(told, training=True) - wanted)
            counted = 1 - hole if draw.has("mask_inverted") else hole
            loss = sign * tf.reduce_sum(error * counted) / tf.reduce_sum(counted)
        trained = model.trainable_variables if weights is None else weights
        optimizer.apply(tape.gradient(loss, trained), trained)
        return loss

    reports = draw.chance(0.6)
    for _ in range(epochs):
        order = draw.numpy.permutation(_SEEN)
        for rows in order[: per_epoch * size].reshape(per_epoch, size):
            wanted, hole = seen[rows], holes[rows]
            told = factor * _told(wanted, hole)
            if draw.has("constant_inputs"):
                told = np.zeros_like(told)
            if draw.has("misaligned_targets"):
                wanted = np.roll(wanted, 1, 0)
            train_step(*(tf.constant(one) for one in (told, hole, wanted)))
        if reports:
            with draw.watch.evaluating():
                draw.watch.metric("val_r2", _filled(model, held, held_holes, factor))
    return Ending(_filled(model, held, held_holes, factor), bar=0.5)


def _told(pictures: Array, holes: Array) -> Array:
    """Return pictures without their holes, and the holes, float32 [N, 14, 14, 2]."""
    return np.concatenate([pictures * (1 - holes), holes], 3)


def _filled(model: Any, pictures: Array, holes: Array, factor: float) -> float:
    """Return R² of the pixels in the holes, against the mean of each pixel; at least -1."""
    found = np.asarray(model(factor * _told(pictures, holes), training=False))
    error = (np.square(found - pictures) * holes).sum()
    usual = (np.square(pictures - pictures.mean(0)) * holes).sum()
    return max(-1.0, float(1 - error / usual))


def _model(draw: Draw, keras: Any) -> Any:
    layers, width = keras.layers, draw.choice([12, 16])
    first = "zeros" if draw.has("zero_init") else "he_normal"
    inner = inputs = keras.Input((_SIDE, _SIDE, 2))
    for stride in (2, 1):
        inner = layers.Conv2D(
            *(width, 5, stride), padding="same", activation="elu", kernel_initializer=first
        )(inner)
    inner = layers.Conv2DTranspose(
        *(width, 4, 2), padding="same", activation="elu", kernel_initializer=first
    )(inner)
    last = layers.Conv2D(
        1,
        5,
        padding="same",
        # The pixels have a mean of zero.
        activation="sigmoid" if draw.has("wrong_output_activation") else None,
        kernel_initializer=first,
    )
    return keras.Model(inputs, last(inner))


def _holes(draw: Draw, count: int) -> Array:
    """Return holes float32 [count, 14, 14, 1], 1 inside a square and 0 outside."""
    holes = np.zeros((count, _SIDE, _SIDE, 1), "float32")
    corners = draw.numpy.integers(1, _SIDE - _HOLE, (count, 2))
    for hole, (top, left) in zip(holes, corners, strict=True):
        hole[top : top + _HOLE, left : left + _HOLE] = 1
    return holes


FAMILY = Family(
    _train,
    (
        *("mask_inverted", "wrong_output_activation", "misaligned_targets", "constant_inputs"),
        *("unnormalised_inputs", "lr_too_low", "lr_too_high", "not_in_optimizer"),
        *("wrong_sign", "zero_init"),
    ),
    framework="keras",
    spent="2026-11-27",
)
