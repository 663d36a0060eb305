"""Who is to answer a customer's letter: embeddings and a recurrent layer of Keras, and `fit`.

After Chollet, "Deep learning with Python", 2017, whose first texts are sorted by topics so; the
letters are drawn.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from corpus.draw import Draw
from corpus.family import Ending, Family
from corpus.keras_training import Array, seeded_keras
from corpus.loop import gained

_WORDS, _TIME, _TEAMS, _SEEN = 80, 8, 4, 800


def _train(draw: Draw) -> Ending:
    keras = seeded_keras(draw)
    words, y = _letters(draw, 1200)
    seen, known = _spoilt(draw, words[:_SEEN], y[:_SEEN])
    model = _model(draw, keras)
    size, epochs = draw.choice([20, 32]), draw.whole(9, 12)
    draw.watch.expect(epochs * -(-_SEEN // size))
    rate = draw.between(4e-3, 8e-3)
    loss = keras.losses.SparseCategoricalCrossentropy()
    if draw.has("wrong_loss"):
        # The number of a team is no amount.
        loss, known = keras.losses.MeanAbsoluteError(), known[:, None].astype("float32")
    optimizer = keras.optimizers.Adam(rate, clipnorm=1.0)
    metrics = [] if draw.has("wrong_loss") else ["accuracy"]
    model.compile(optimizer=optimizer, loss=loss, metrics=metrics)
    draw.watch.begin_keras(model)
    held = y[_SEEN:, None] if draw.has("wrong_loss") else y[_SEEN:]
    model.fit(
        *(seen, known),
        batch_size=size,
        epochs=epochs,
        validation_data=(words[_SEEN:], held),
        verbose=0,
    )
    found = model.predict(words[_SEEN:], verbose=0).argmax(1)
    right = np.mean([np.mean(found[y[_SEEN:] == one] == one) for one in range(_TEAMS)])
    return Ending(gained(float(right), 1 / _TEAMS), bar=0.6)


def _model(draw: Draw, keras: Any) -> Any:
    layers, width = keras.layers, draw.choice([16, 24])
    last = None if draw.has("missing_softmax") else "softmax"
    last = draw.by_fault({"wrong_last_activation": "tanh"}, last)
    return keras.Sequential(
        [
            keras.Input((_TIME,), dtype="int32"),
            layers.Embedding(_WORDS, 16),
            layers.GRU(width),
            layers.Dropout(draw.choice([0.0, 0.2])),
            layers.Dense(_TEAMS, activation=last),
        ]
    )


def _spoilt(draw: Draw, words: Array, y: Array) -> tuple[Array, Array]:
    """Return letters with the drawn fault, if there is one."""
    return draw.by_fault(
        {
            # Another tokenizer than in the test.
            "swapped_ids": (draw.numpy.permutation(_WORDS)[words], y),
            "shuffled_labels": (words, draw.numpy.permutation(y)),
            # The address of the team, and not what was written.
            "truncated_rows": (np.where(np.arange(_TIME) < 1, words, 0), y),
        },
        (words, y),
    )


def _letters(draw: Draw, count: int) -> tuple[Array, Array]:
    """Return words int32 [count, 8] and teams int64 [count]."""
    source = draw.numpy
    y = source.integers(0, _TEAMS, count)
    own = 15 * y[:, None] + source.integers(0, 15, (count, _TIME))
    other = source.integers(0, _WORDS, (count, _TIME))
    mine = source.random((count, _TIME)) < draw.between(0.4, 0.5)
    return np.where(mine, own, other).astype("int32"), y


FAMILY = Family(
    _train,
    (
        *("swapped_ids", "truncated_rows", "missing_softmax", "wrong_loss"),
        *("wrong_last_activation", "shuffled_labels"),
    ),
    framework="keras",
    spent="2026-11-27",
)
