"""A custom loop under MultiWorkerMirroredStrategy, in which worker 1 fails after ten steps."""

from __future__ import annotations

import json
import os
import sys

import keras
import tensorflow as tf

RANK = json.loads(os.environ["TF_CONFIG"])["task"]["index"]
STRATEGY = tf.distribute.MultiWorkerMirroredStrategy()
keras.utils.set_random_seed(0)
with STRATEGY.scope():
    MODEL = keras.Sequential([keras.Input((8,)), keras.layers.Dense(3)])
    OPTIMIZER = keras.optimizers.SGD(0.05)
    OPTIMIZER.build(MODEL.trainable_variables)
LOSS = keras.losses.SparseCategoricalCrossentropy(from_logits=True, reduction="sum")


def replica(x: tf.Tensor, y: tf.Tensor) -> None:
    with tf.GradientTape() as tape:
        loss = LOSS(y, MODEL(x, training=True)) / 32
    gradients = tape.gradient(loss, MODEL.trainable_variables)
    OPTIMIZER.apply(gradients, MODEL.trainable_variables)


@tf.function  # type: ignore[untyped-decorator]
def step(x: tf.Tensor, y: tf.Tensor) -> None:
    STRATEGY.run(replica, args=(x, y))


for number in range(1000):
    if number == 10:
        sums = [float(variable.numpy().sum()) for variable in MODEL.trainable_variables]
        sys.stdout.write(f"weights: {sums}\n")
        if RANK == 1:
            raise ValueError("no such label")
    inputs = tf.random.stateless_normal((16, 8), seed=(RANK, number))
    step(inputs, tf.cast(tf.reduce_sum(inputs, 1) > 0, tf.int32))
