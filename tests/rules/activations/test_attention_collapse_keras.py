"""Attention in Keras that is saturated from the start, and attention that learns."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

os.environ.setdefault("KERAS_BACKEND", "tensorflow")
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import keras
import numpy as np
import torch
from keras import layers

from tests.rules.activations.transformers import marked
from vinedresser.capture.hook.hook import Hook
from vinedresser.rules.activations.attention_collapse import AttentionCollapse
from vinedresser.rules.base import capture_for
from vinedresser.rules.judge import judge
from vinedresser.store.finding import Finding
from vinedresser.store.reading.reader import open_run

pytestmark = [
    pytest.mark.thorough,
    # Of Keras itself, whenever it makes an array of a variable.
    pytest.mark.filterwarnings("ignore:__array__ implementation:DeprecationWarning"),
]


def findings(directory: Path, factor: float, rate: float, steps: int) -> list[Finding]:
    """Train on marked tokens, queries at first times a factor; return the findings."""
    keras.utils.set_random_seed(0)
    generator = torch.Generator().manual_seed(1)
    batches = [marked(generator) for _ in range(steps)]
    x, y = (torch.cat([batch[place] for batch in batches]).numpy() for place in (0, 1))
    # A token at another place is another token: equal keys would share the weight.
    x += 12 * np.arange(20)
    tokens = keras.Input((20,), dtype="int32")
    states = layers.Embedding(240, 32)(tokens)
    attend = layers.MultiHeadAttention(4, 8, name="attend")
    mixed = layers.Dense(32, activation="gelu")(attend(states, states))
    model = keras.Model(tokens, layers.Dense(10)(mixed[:, 0]))
    attend.query_dense.kernel.assign(factor * attend.query_dense.kernel)
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile(keras.optimizers.Adam(rate), loss)
    rules = [AttentionCollapse(every=20)]
    collections = capture_for(rules).collections
    with Hook(directory, collections=collections, total_steps=steps) as hook:
        hook.watch(model)
        model.fit(x, y, batch_size=64, shuffle=False, verbose=0)
    run = open_run(directory)
    # One number per head.
    assert run.tensor("attention/attend").channels("std", step=0).shape == (4,)
    return judge(run, rules)


def test_scores_that_are_too_large(tmp_path: Path) -> None:
    (found,) = findings(tmp_path / "run", 1e6, rate=0.3, steps=300)
    assert found.seen.startswith("each head of attention/attend attends to a single key")


def test_attention_that_learns(tmp_path: Path) -> None:
    assert findings(tmp_path / "run", 1.0, rate=1e-3, steps=200) == []
