"""Train on the same digits with TensorFlow, once without a break and once with a resumption."""

from __future__ import annotations

import argparse
import json

import keras
import numpy as np
import tensorflow as tf

from examples.s3_digits.data import mixture
from vinedresser.data import Mixture, tf_dataset

STEPS, BREAK = 200, 80
SIGNATURE = (tf.TensorSpec((None, 64), tf.float32), tf.TensorSpec((None,), tf.int64))


def main() -> None:
    """Train two models, the second from where the first one was at a batch."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", required=True, help="s3://bucket/prefix")
    parser.add_argument("--boost", type=float, default=40.0)
    arguments = parser.parse_args()
    data, resumed = mixture(arguments.data), mixture(arguments.data)
    data.boost({"8": arguments.boost}, at=BREAK // 2)
    model, again = build(), build()
    train(model, data, BREAK)
    state = json.loads(json.dumps(data.state_dict()))
    again.set_weights(model.get_weights())
    train(model, data, STEPS)
    resumed.load_state_dict(state)
    train(again, resumed, STEPS)
    pairs = zip(model.get_weights(), again.get_weights(), strict=True)
    same = all(np.array_equal(one, other) for one, other in pairs)
    verdict = "are" if same else "ARE NOT"
    print(f"TensorFlow, resumed at batch {BREAK} of {STEPS}: final weights {verdict} the same")


def build() -> keras.Model:
    """Return a small network."""
    keras.utils.set_random_seed(0)
    model = keras.Sequential(
        [keras.Input((64,)), keras.layers.Dense(32, "relu"), keras.layers.Dense(10)]
    )
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile(keras.optimizers.SGD(0.02), loss)
    return model


def train(model: keras.Model, data: Mixture, steps: int) -> None:
    """Train until a batch, from where the data set is."""
    batches = iter(tf_dataset(data, signature=SIGNATURE))
    while data.state_dict()["batch"] < steps:
        batch = next(batches, None)
        if batch is None:
            batches = iter(tf_dataset(data, signature=SIGNATURE))
        else:
            model.train_on_batch(*batch)


if __name__ == "__main__":
    main()
