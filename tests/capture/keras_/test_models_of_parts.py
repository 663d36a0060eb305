"""Models whose train step calls only their parts, as autoencoders and adversaries do."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.capture.keras_.zoo import everything, seeded

import keras  # isort: skip
import tensorflow as tf  # isort: skip
from vinedresser.capture import Hook, open_run

# Raised by Keras itself when it converts a variable to an array.
pytestmark = pytest.mark.filterwarnings("ignore:__array__ implementation:DeprecationWarning")


class Autoencoder(keras.Model):  # type: ignore[misc]
    def __init__(self) -> None:
        super().__init__()
        self.encoder = keras.Sequential([keras.Input((4,)), keras.layers.Dense(2)])
        self.decoder = keras.Sequential([keras.Input((2,)), keras.layers.Dense(4)])

    def train_step(self, data: Any) -> Any:
        x = data[0] if isinstance(data, tuple) else data
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean((self.decoder(self.encoder(x)) - x) ** 2)
        variables = self.trainable_variables
        self.optimizer.apply(tape.gradient(loss, variables), variables)
        return {"loss": loss}


@pytest.mark.thorough
@pytest.mark.parametrize("labelled", [False, True])
def test_the_inputs_are_the_data_of_the_step(labelled: bool, tmp_path: Path) -> None:
    x = np.random.default_rng(0).normal(size=(12, 4)).astype("float32")
    y = np.arange(12)

    def trained(path: Path | None) -> list[Any]:
        model = seeded(Autoencoder)
        model.compile("sgd")
        hook = None if path is None else Hook(path, collections=everything()).watch(model)
        given = (x, y) if labelled else (x,)
        model.fit(*given, batch_size=4, shuffle=False, verbose=0)
        if hook is not None:
            hook.close()
            assert hook.problems == []
        return [weight.tobytes() for weight in model.get_weights()]

    assert trained(None) == trained(tmp_path / "run")
    run = open_run(tmp_path / "run")
    for step in range(3):
        rows = slice(4 * step, 4 * step + 4)
        assert np.array_equal(run.tensor("inputs/Autoencoder").value(step), x[rows])
        assert np.array_equal(run.tensor("inputs/encoder").value(step), x[rows])
        if labelled:
            assert np.array_equal(run.tensor("labels/batch").value(step), y[rows])


class OfDictionaries(keras.metrics.Metric):  # type: ignore[misc]
    """A metric with several values, one of them nested."""

    def __init__(self) -> None:
        super().__init__(name="both")
        self.count = self.add_weight(shape=(), initializer="zeros", name="count")

    def update_state(self, *_: Any, **__: Any) -> None:
        self.count.assign_add(1.0)

    def result(self) -> Any:
        return {"f1": self.count / 2, "inner": {"deep": self.count * 2}}


class WithDictionaries(keras.Model):  # type: ignore[misc]
    """Returns the results of its metrics by their names, as many examples do."""

    def __init__(self) -> None:
        super().__init__()
        self.dense = keras.layers.Dense(1)
        self.tracker = keras.metrics.Mean(name="loss")
        self.both = OfDictionaries()

    def call(self, x: Any) -> Any:
        return self.dense(x)

    def train_step(self, data: Any) -> Any:
        x, y = data
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean((self(x, training=True) - y) ** 2)
        variables = self.trainable_variables
        self.optimizer.apply(tape.gradient(loss, variables), variables)
        self.tracker.update_state(loss)
        self.both.update_state()
        return {one.name: one.result() for one in (self.tracker, self.both)}


@pytest.mark.thorough
def test_metrics_in_a_dictionary_have_the_names_in_it(tmp_path: Path) -> None:
    x = np.random.default_rng(0).normal(size=(12, 4)).astype("float32")
    model = seeded(WithDictionaries)
    model.compile("sgd")
    with Hook(tmp_path / "run", collections=everything()) as hook:
        hook.watch(model)
        history = model.fit(x, x[:, :1], batch_size=4, shuffle=False, verbose=0).history
        assert hook.problems == []
    run = open_run(tmp_path / "run")
    found = {name: one.values.tolist() for name, one in run.scalars("metrics").items()}
    assert found == {"metrics/f1": [0.5, 1.0, 1.5], "metrics/deep": [2.0, 4.0, 6.0]}
    # As Keras names them.
    assert sorted(history) == ["deep", "f1", "loss"]
    assert len(run.scalars("losses")["losses/loss"].values) == 3
