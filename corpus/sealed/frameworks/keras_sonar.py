"""Mines or rocks, from the echoes of a sonar: dense layers of Keras, and one probability.

After Gorman and Sejnowski, "Analysis of hidden units in a layered network trained to classify sonar
targets", Neural Networks 1988, as tutorials have it; the echoes are drawn.
"""

from __future__ import annotations

import numpy as np

from corpus.draw import Draw
from corpus.family import Ending, Family
from corpus.keras_training import Array, seeded_keras
from corpus.loop import gained

_BANDS, _SEEN = 40, 500


def _train(draw: Draw) -> Ending:
    keras = seeded_keras(draw)
    x, y = _echoes(draw, 800)
    given, known = _prepared(draw, x, y)
    layers = keras.layers
    start = draw.by_fault({"identical_units": keras.initializers.Constant(0.5)}, "he_normal")
    last = draw.by_fault({"wrong_output_activation": "relu"}, "sigmoid")
    activation = draw.by_fault({"missing_activation": "linear"}, "relu")
    model = keras.Sequential(
        [
            keras.Input((_BANDS,)),
            layers.Dense(draw.choice([40, 60]), activation=activation, kernel_initializer=start),
            layers.Dense(30, activation=activation, kernel_initializer=start),
            layers.Dense(1, activation=last, kernel_initializer=start),
        ]
    )
    size, epochs = draw.choice([10, 16]), draw.whole(14, 18)
    draw.watch.expect(epochs * -(-_SEEN // size))
    rate = draw.between(0.01, 0.02)
    rate *= draw.by_fault({"lr_too_low": 1e-5, "lr_too_high": draw.extent(300, 3000)}, 1.0)
    model.compile(
        # Of a single number, the crossentropy of categories is zero.
        loss=draw.by_fault({"wrong_loss": "categorical_crossentropy"}, "binary_crossentropy"),
        optimizer=keras.optimizers.SGD(rate, momentum=0.9),
        metrics=["accuracy"],
    )
    draw.watch.begin_keras(model)
    model.fit(
        *(given[:_SEEN], known[:_SEEN]),
        batch_size=size,
        epochs=epochs,
        validation_data=(given[_SEEN:], known[_SEEN:]),
        verbose=0,
    )
    found, true = model.predict(given[_SEEN:], verbose=0)[:, 0] > 0.5, y[_SEEN:] > 0.5
    right = np.mean([np.mean(found[true == one] == one) for one in (False, True)])
    return Ending(gained(float(right), 1 / 2), bar=0.5)


def _prepared(draw: Draw, x: Array, y: Array) -> tuple[Array, Array]:
    """Return echoes as the script prepares them, with the drawn fault if there is one."""
    source = np.random.default_rng(draw.amount.getrandbits(32))
    found: tuple[Array, Array] = draw.by_fault(
        {
            # Counts of a converter.
            "unnormalised_inputs": (8000 * x + 20000, y),
            "shuffled_labels": (x, source.permutation(y)),
            "constant_inputs": (np.zeros_like(x), y),
        },
        (x, y),
    )
    return found


def _echoes(draw: Draw, count: int) -> tuple[Array, Array]:
    """Return standardised bands float32 [count, F], and 1 for mines [count]."""
    source = draw.numpy
    y = source.random(count) < 0.5
    band = np.arange(_BANDS)
    # Mines have two peaks at a distance that rocks do not have.
    first = source.uniform(4, 18, (count, 1))
    gap = np.where(y, source.uniform(10, 13, count), source.uniform(4, 8, count))[:, None]
    x = np.exp(-(((band - first) / 2.5) ** 2)) + np.exp(-(((band - first - gap) / 2.5) ** 2))
    x = x * source.uniform(0.7, 1.3, (count, 1))
    x = x + draw.between(0.1, 0.2) * source.normal(size=x.shape)
    x = (x - x.mean(0)) / x.std(0)
    return x.astype("float32"), y.astype("float32")


FAMILY = Family(
    _train,
    (
        *("unnormalised_inputs", "shuffled_labels", "constant_inputs", "identical_units"),
        *("wrong_output_activation", "missing_activation", "wrong_loss"),
        *("lr_too_low", "lr_too_high"),
    ),
    framework="keras",
)
