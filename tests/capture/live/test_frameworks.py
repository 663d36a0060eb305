"""Trainings of other frameworks answer from the tensors that they could store."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from tests.capture.live.live_training import Client
from tests.waiting import until
from vinedresser.capture import Hook, SaveConfig
from vinedresser.store.reading.reader import open_run


@pytest.mark.thorough
def test_keras_on_tensorflow(tmp_path: Path) -> None:
    keras = pytest.importorskip("keras")
    keras.utils.set_random_seed(0)
    model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(8), keras.layers.Dense(1)])
    model.compile("sgd", "mse")
    path, x = tmp_path / "run", np.random.default_rng(0).normal(size=(64, 4))
    every = {"gradients": SaveConfig(every=1)}
    with Hook(path, live=True, collections=every).watch(model) as hook:
        client = Client(path, "norm(gradients)", limit=5)
        loss = Client(path, "loss", limit=5)
        table = hook._agent.observer.table  # type: ignore[union-attr]
        until(lambda: len(table) == 2)
        model.fit(x, x.sum(1), epochs=3, batch_size=16, verbose=0)
        until(lambda: client.done() and loss.done())
        assert hook.problems == []
    run = open_run(path)
    names = [name for name in run.tensor_names() if name.startswith("gradients/")]
    for answer in client.answers:
        squares = sum((run.tensor(name).value(answer.step) ** 2).sum() for name in names)
        assert answer.value == pytest.approx(np.sqrt(squares), rel=1e-5)
    assert loss.answers[0].kind == "scalar"
