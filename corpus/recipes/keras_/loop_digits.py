"""A subclassed Keras model of digits, trained by a loop of its own.

Settings: Keras' guide "Writing a training loop from scratch in TensorFlow": two layers of 64 with
ReLU, scores without softmax, SGD with a rate of 1e-3, here 0.05 for fewer epochs, a batch of 64,
the step as a `tf.function`.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from corpus.data.bundled import digits
from corpus.draw import Draw
from corpus.family import Ending, Family
from corpus.keras_training import seeded_keras
from corpus.loop import gained

_EPOCHS, _ROWS, _BATCH = 20, 1400, 64


def _train(draw: Draw) -> Ending:
    keras = seeded_keras(draw)
    import tensorflow as tf

    epoch = _ROWS // _BATCH
    draw.watch.expect(_EPOCHS * epoch)
    images, labels = (one.numpy() for one in digits(8))
    x = images.reshape(-1, 64)
    if draw.has("wrong_axis"):
        # The pixels come first in the array, and the reshaping takes them for images.
        x = x.T.reshape(-1, 64)
    model = _model(keras)
    rate = 5e-5 if draw.has("lr_too_low") else 0.05
    optimizer = keras.optimizers.SGD(rate)
    # The scores are taken for probabilities.
    scores = not draw.has("missing_softmax")
    loss_fn = keras.losses.SparseCategoricalCrossentropy(from_logits=scores)
    draw.watch.begin_keras(model, loss_fn, optimizer)

    @tf.function  # type: ignore[untyped-decorator]
    def train_step(data: Any, target: Any) -> Any:
        with tf.GradientTape() as tape:
            loss = loss_fn(target, model(data, training=True))
        gradients = tape.gradient(loss, model.trainable_weights)
        optimizer.apply(gradients, model.trainable_weights)
        return loss

    held_out, wanted = x[_ROWS:], labels[_ROWS:]
    for _ in range(_EPOCHS):
        order = draw.numpy.permutation(_ROWS)
        for start in range(0, epoch * _BATCH, _BATCH):
            rows = order[start : start + _BATCH]
            train_step(tf.constant(x[rows]), tf.constant(labels[rows]))
        with draw.watch.evaluating():
            found = np.asarray(model(held_out, training=False)).argmax(1)
            draw.watch.metric("val_accuracy", float(np.mean(found == wanted)))
    return Ending(gained(float(np.mean(found == wanted)), 0.1), bar=0.8)


def _model(keras: Any) -> Any:
    class Classifier(keras.Model):  # type: ignore[misc]
        """Scores of digits."""

        def __init__(self) -> None:
            super().__init__()
            self.dense_1 = keras.layers.Dense(64, activation="relu")
            self.dense_2 = keras.layers.Dense(64, activation="relu")
            self.scores = keras.layers.Dense(10)

        def call(self, x: Any) -> Any:
            """Return the scores."""
            return self.scores(self.dense_2(self.dense_1(x)))

    return Classifier()


FAMILY = Family(
    _train, ("wrong_axis", "missing_softmax", "lr_too_low"), framework="keras", spent="2026-11-25"
)
