"""Keras trainings that require TensorFlow: graphs, tapes, tf.data."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import keras

from tests.capture.keras_.zoo import Attach, classifier, cnn, images

import tensorflow as tf  # isort: skip

__all__ = ["ZOO_TENSORFLOW", "batches"]


def batches() -> Any:
    """Return seven batches of four images."""
    return tf.data.Dataset.from_tensor_slices(images()).batch(4).prefetch(2)


def _fused(attach: Attach) -> Any:
    model = classifier(cnn(), steps_per_execution=3)
    attach(model)
    model.fit(batches(), epochs=2, verbose=0, shuffle=False, validation_data=batches())
    model.predict(images()[0], batch_size=4, verbose=0)
    return model


def _jit(attach: Attach) -> Any:
    model = classifier(cnn(), jit_compile=True)
    attach(model)
    model.fit(batches(), epochs=2, verbose=0, shuffle=False)
    return model


def _eager(attach: Attach) -> Any:
    model = classifier(cnn(), run_eagerly=True)
    attach(model)
    model.fit(batches().take(3), epochs=1, verbose=0, shuffle=False)
    return model


class _Adversaries(keras.Model):  # type: ignore[misc]
    """Two models with one optimizer each and a custom train step."""

    def __init__(self) -> None:
        super().__init__()
        self.generator = keras.Sequential([keras.layers.Dense(8, activation="relu")])
        self.critic = keras.Sequential([keras.layers.Dense(4), keras.layers.Dense(1)])
        self.generated = keras.optimizers.Adam(0.01)
        self.criticised = keras.optimizers.SGD(0.01)

    def call(self, x: Any) -> Any:
        return self.critic(self.generator(x))

    def train_step(self, data: Any) -> Any:
        x = data[0] if isinstance(data, tuple) else data
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean(self.critic(self.generator(x)) ** 2)
        variables = self.critic.trainable_variables
        self.criticised.apply_gradients(zip(tape.gradient(loss, variables), variables, strict=True))
        with tf.GradientTape() as tape:
            other = -tf.reduce_mean(self.critic(self.generator(x)))
        variables = self.generator.trainable_variables
        self.generated.apply(tape.gradient(other, variables), variables)
        return {"critic_loss": loss, "generator_loss": other}


def _adversaries(attach: Attach) -> Any:
    model = _Adversaries()
    model.compile()
    attach(model)
    x = images()[0].reshape(-1, 64)
    model.fit(x, batch_size=4, verbose=0)
    model.optimizer = None
    return model


def _tape(attach: Attach) -> Any:
    model, optimizer = cnn(), keras.optimizers.Adam(0.01)
    loss_fn = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    attach(model, loss=loss_fn, optimizer=optimizer)
    for x, y in batches():
        with tf.GradientTape() as tape:
            loss = loss_fn(y, model(x, training=True))
        gradients = tape.gradient(loss, model.trainable_variables)
        optimizer.apply_gradients(zip(gradients, model.trainable_variables, strict=True))
    return model


def _function(attach: Attach, *, reported: bool = True) -> Any:
    model, optimizer = cnn(), keras.optimizers.Adam(0.01)
    loss_fn = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    attach(model, **({"loss": loss_fn} if reported else {}))

    def train(x: Any, y: Any) -> Any:
        with tf.GradientTape() as tape:
            loss = loss_fn(y, model(x, training=True))
        gradients = tape.gradient(loss, model.trainable_variables)
        optimizer.apply_gradients(zip(gradients, model.trainable_variables, strict=True))
        return loss

    step = tf.function(train)
    for x, y in batches():
        step(x, y)
    return model


ZOO_TENSORFLOW: dict[str, Callable[[Attach], Any]] = {
    "fused": _fused,
    "jit": _jit,
    "eager": _eager,
    "adversaries": _adversaries,
    "tape": _tape,
    "function": _function,
    "unreported": partial(_function, reported=False),
}
