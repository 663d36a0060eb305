"""Clicks and time spent, from a user, an item and a context: two outputs of one Keras model.

After Cheng et al., "Wide & deep learning for recommender systems", DLRS 2016.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from corpus.draw import Draw
from corpus.family import Ending, Family
from corpus.keras_training import Array, seeded_keras

_USERS, _ITEMS, _CONTEXT = 60, 40, 6
_RATES = {"Adam": (3e-3, 8e-3), "Nadam": (3e-3, 6e-3), "RMSprop": (2e-3, 5e-3)}


def _train(draw: Draw) -> Ending:
    keras = seeded_keras(draw)
    inputs, click, spent = _log(draw, 3600)
    kept = 2700
    shown = {name: one[:kept] for name, one in inputs.items()}
    held_out = {name: one[kept:] for name, one in inputs.items()}
    known = {"click": click[:kept], "spent": spent[:kept]}
    if draw.has("colliding_ids"):
        # A hash of the numbers with a seed of the process: other rows at each start.
        shown |= {name: draw.numpy.permutation(shown[name]) for name in ("user", "item")}
    if draw.has("misaligned_targets"):
        known = {name: np.roll(one, 7, axis=0) for name, one in known.items()}
    if draw.has("unnormalised_inputs"):
        for part in (shown, held_out):
            part["context"] = part["context"] * draw.amount.choice([1e4, 1e5]) + 1e5
    if draw.has("unnormalised_targets"):
        known["spent"] = 3e4 * known["spent"] + 1e5
    model = _model(draw, keras)
    size, epochs = draw.choice([32, 64]), draw.whole(10, 16)
    draw.watch.expect(epochs * -(-kept // size))
    kind = draw.choice(sorted(_RATES))
    rate = draw.between(*_RATES[kind])
    rate *= draw.extent(1e-6, 1e-4) if draw.has("lr_too_low") else 1.0
    rate *= draw.extent(300, 3000) if draw.has("lr_too_high") else 1.0
    model.compile(
        optimizer=getattr(keras.optimizers, kind)(rate),
        loss={
            "click": keras.losses.BinaryCrossentropy(from_logits=True),
            "spent": keras.losses.Huber() if draw.chance(0.5) else "mse",
        },
        loss_weights={"click": 1.0, "spent": 0.0 if draw.has("term_left_out") else 0.5},
    )
    draw.watch.begin_keras(model)
    slower = keras.callbacks.ReduceLROnPlateau(monitor="loss", factor=0.5, patience=3)
    validated = draw.chance(0.6)
    model.fit(
        *(shown, known),
        batch_size=size,
        epochs=epochs,
        callbacks=[slower],
        validation_split=0.1 if validated else 0.0,
        verbose=0,
    )
    found = model.predict(held_out, verbose=0)
    scores = _gini(found["click"][:, 0], click[kept:, 0]), _fit(found["spent"], spent[kept:])
    return Ending(float(np.mean(scores)), bar=0.5)


def _model(draw: Draw, keras: Any) -> Any:
    layers, size, width = keras.layers, draw.choice([8, 12]), draw.choice([32, 48])
    user = keras.Input((1,), name="user", dtype="int32")
    item = keras.Input((1,), name="item", dtype="int32")
    context = keras.Input((_CONTEXT,), name="context")
    embedded = [
        layers.Flatten()(layers.Embedding(count, size)(one))
        for one, count in ((user, _USERS), (item, _ITEMS))
    ]
    inner = layers.Concatenate()([*embedded, layers.Multiply()(embedded), context])
    for _ in range(2):
        inner = layers.Dense(width, activation="relu")(inner)
    wide = layers.Concatenate()([inner, *embedded, context])
    outputs = {name: layers.Dense(1, name=name)(wide) for name in ("click", "spent")}
    return keras.Model({"user": user, "item": item, "context": context}, outputs)


def _log(draw: Draw, count: int) -> tuple[dict[str, Array], Array, Array]:
    """Return the inputs by name, clicks and standardised times float32 [count, 1]."""
    source = draw.numpy
    user, item = source.integers(0, _USERS, (count, 1)), source.integers(0, _ITEMS, (count, 1))
    context = source.normal(size=(count, _CONTEXT))
    bias = source.normal(size=_USERS)[user], source.normal(size=_ITEMS)[item]
    towards = context @ source.normal(size=(_CONTEXT, 2)) / _CONTEXT**0.5
    chance = 1 / (1 + np.exp(-2.0 * (bias[0] + bias[1] + towards[:, :1])))
    click = (source.random((count, 1)) < chance).astype("float32")
    spent = bias[1] - bias[0] + np.abs(towards[:, 1:]) * 1.5
    spent = spent + draw.between(0.2, 0.5) * source.normal(size=(count, 1))
    spent = (spent - spent.mean()) / spent.std()
    inputs = {"user": user.astype("int32"), "item": item.astype("int32")}
    return inputs | {"context": context.astype("float32")}, click, spent.astype("float32")


def _gini(scores: Array, labels: Array) -> float:
    """Return twice the area under the ROC curve, less 1."""
    if not np.isfinite(scores).all() or np.ptp(scores) == 0:
        return 0.0
    ranks = scores.argsort().argsort() + 1.0
    positive = labels == 1
    count, others = positive.sum(), (~positive).sum()
    area = (ranks[positive].sum() - count * (count + 1) / 2) / (count * others)
    return float(2 * area - 1)


def _fit(found: Array, wanted: Array) -> float:
    """Return R², from -1 on."""
    left = np.square(found - wanted).mean() / np.square(wanted - wanted.mean()).mean()
    return float(max(-1.0, 1 - left)) if np.isfinite(left) else -1.0


FAMILY = Family(
    _train,
    (
        *("colliding_ids", "misaligned_targets", "unnormalised_inputs", "unnormalised_targets"),
        *("term_left_out", "lr_too_low", "lr_too_high"),
    ),
    framework="keras",
    spent="2026-11-26",
)
