"""Whether a reader likes an article: two towers of Keras with one product, and two inputs of `fit`.

After Huang et al., "Learning deep structured semantic models for web search", CIKM 2013.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from corpus.draw import Draw
from corpus.family import Ending, Family
from corpus.keras_training import Array, seeded_keras

_READERS, _FEATURES, _SEEN = 30, 8, 2000

Inputs = dict[str, Array]


def _train(draw: Draw) -> Ending:
    keras = seeded_keras(draw)
    inputs, y = _visits(draw, 2800)
    seen = {name: one[:_SEEN] for name, one in inputs.items()}
    seen, known = _spoilt(draw, seen, y[:_SEEN])
    model = _model(draw, keras)
    size, epochs = draw.choice([40, 50]), draw.whole(14, 18)
    draw.watch.expect(epochs * _SEEN // size)
    rate = draw.between(4e-3, 8e-3)
    rate *= draw.by_fault({"lr_too_low": draw.extent(1e-6, 1e-5), "lr_too_high": 3000.0}, 1.0)
    model.compile(
        optimizer=keras.optimizers.Nadam(rate),
        loss=keras.losses.BinaryCrossentropy(from_logits=True),
        metrics=[keras.metrics.AUC(from_logits=True)],
    )
    draw.watch.begin_keras(model)
    model.fit(
        *(seen, known),
        batch_size=size,
        epochs=epochs,
        validation_split=draw.choice([0.0, 0.1]),
        verbose=0,
    )
    held = {name: one[_SEEN:] for name, one in inputs.items()}
    found = np.nan_to_num(model.predict(held, verbose=0)[:, 0])
    likes = y[_SEEN:, 0] > 0.5
    return Ending(float(np.sign(found[likes][:, None] - found[~likes]).mean()), bar=0.55)


def _model(draw: Draw, keras: Any) -> Any:
    layers, width = keras.layers, draw.choice([8, 12])
    first = {"kernel_initializer": "zeros"} if draw.has("zero_init") else {}
    vectors = {"embeddings_initializer": "zeros"} if draw.has("zero_init") else {}
    reader = keras.Input((), dtype="int32", name="reader")
    article = keras.Input((_FEATURES,), name="article")
    who = layers.Embedding(_READERS, width, **vectors)(reader)
    what = layers.Dense(32, activation="relu", **first)(article)
    what = layers.Dense(width, **first)(what)
    score = layers.Dot(1)([who, what])
    return keras.Model([reader, article], layers.Dense(1)(score))


def _spoilt(draw: Draw, inputs: Inputs, y: Array) -> tuple[Inputs, Array]:
    """Return the visits with the drawn fault, if there is one."""
    reader, article = inputs["reader"], inputs["article"]
    return draw.by_fault(
        {
            # The two tables were sorted by different columns.
            "misaligned_targets": (inputs, np.roll(y, 1, 0)),
            "swapped_ids": (
                {"reader": draw.numpy.permutation(_READERS)[reader], "article": article},
                y,
            ),
            "colliding_ids": ({"reader": reader % 2, "article": article}, y),
            # The log contains only the items that were liked.
            "single_label": (inputs, np.ones_like(y)),
            # The columns of the table came as rows.
            "wrong_axis": ({"reader": reader, "article": article.T.reshape(article.shape)}, y),
            "constant_inputs": ({"reader": reader, "article": np.zeros_like(article)}, y),
        },
        (inputs, y),
    )


def _visits(draw: Draw, count: int) -> tuple[Inputs, Array]:
    """Return who saw what, and whether it was liked float32 [count, 1]."""
    source = draw.numpy
    reader = source.integers(0, _READERS, count)
    article = source.normal(size=(count, _FEATURES)).astype("float32")
    kinds = source.normal(size=(3, _FEATURES))
    like = kinds[source.integers(0, 3, _READERS)] + 0.4 * source.normal(size=(_READERS, _FEATURES))
    score = (like[reader] * article).sum(1) + draw.between(0.3, 0.6) * source.normal(size=count)
    inputs: Inputs = {"reader": reader.astype("int32"), "article": article}
    return inputs, (score > 0)[:, None].astype("float32")


FAMILY = Family(
    _train,
    (
        *("swapped_ids", "colliding_ids", "misaligned_targets", "wrong_axis"),
        *("single_label", "constant_inputs", "lr_too_low", "lr_too_high", "zero_init"),
    ),
    framework="keras",
    spent="2026-11-27",
)
