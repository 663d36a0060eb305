"""Other contents of a Keras run: updates, setup, sampled rows and timing."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.capture.keras_.zoo import classifier, cnn, images, seeded

import keras  # isort: skip
import tensorflow as tf  # isort: skip
from vinedresser.capture import Hook, SaveConfig, open_run

# Raised by Keras itself when it converts a variable to an array.
pytestmark = pytest.mark.filterwarnings("ignore:__array__ implementation:DeprecationWarning")

ALWAYS = {"updates": SaveConfig(every=1)}


class Weights(keras.callbacks.Callback):  # type: ignore[misc]
    """The weights of the first layer before the first batch and after each."""

    def __init__(self) -> None:
        super().__init__()
        self.kernels: list[Any] = []

    def on_train_begin(self, logs: Any = None) -> None:
        self.kernels.append(self.model.layers[0].kernel.numpy().copy())

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        self.kernels.append(self.model.layers[0].kernel.numpy().copy())


@pytest.mark.thorough
@pytest.mark.parametrize("eager", [False, True])
def test_updates_are_differences_of_weights(eager: bool, tmp_path: Path) -> None:
    x, y = images()
    model = seeded(lambda: classifier(cnn(), optimizer=keras.optimizers.Adam(0.01)))
    model.run_eagerly = eager
    notes = Weights()
    with Hook(tmp_path / "run", collections=ALWAYS) as hook:
        hook.watch(model)
        model.fit(x, y, batch_size=8, verbose=0, callbacks=[notes], shuffle=False)
        assert hook.problems == []
    view = open_run(tmp_path / "run").tensor("updates/conv2d.kernel")
    assert view.steps().tolist() == list(range(len(notes.kernels) - 1))
    for step, (before, after) in enumerate(zip(notes.kernels, notes.kernels[1:], strict=False)):
        np.testing.assert_array_equal(view.value(step), after - before)


@pytest.mark.thorough
def test_accumulated_batches_make_one_update(tmp_path: Path) -> None:
    x, y = images()
    optimizer = keras.optimizers.SGD(0.1, gradient_accumulation_steps=2)
    model = seeded(lambda: classifier(cnn(), optimizer=optimizer))
    notes = Weights()
    with Hook(tmp_path / "run", collections=ALWAYS) as hook:
        hook.watch(model)
        model.fit(x[:32], y[:32], batch_size=8, verbose=0, callbacks=[notes], shuffle=False)
        assert hook.problems == []
    view = open_run(tmp_path / "run").tensor("updates/conv2d.kernel")
    assert view.steps().tolist() == [0, 1]
    for step in range(2):
        expected = notes.kernels[2 * step + 2] - notes.kernels[2 * step + 1]
        np.testing.assert_array_equal(view.value(step), expected)


@pytest.mark.thorough
@pytest.mark.parametrize("compiled", [False, True])
def test_updates_in_a_custom_loop(compiled: bool, tmp_path: Path) -> None:
    keras.utils.set_random_seed(0)
    model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(3), keras.layers.Dense(2)])
    optimizer, loss_fn = keras.optimizers.SGD(0.1, momentum=0.9), keras.losses.MeanSquaredError()

    def step(x: Any, y: Any) -> None:
        with tf.GradientTape() as tape:
            loss = loss_fn(y, model(x, training=True))
        gradients = tape.gradient(loss, model.trainable_variables)
        optimizer.apply_gradients(zip(gradients, model.trainable_variables, strict=True))

    run_step = tf.function(step) if compiled else step
    kernels = [model.layers[0].kernel.numpy().copy()]
    with Hook(tmp_path / "run", collections=ALWAYS) as hook:
        hook.watch(model, loss=loss_fn, optimizer=optimizer)
        for number in range(3):
            run_step(tf.ones((5, 4)) * number, tf.zeros((5, 2)))
            kernels.append(model.layers[0].kernel.numpy().copy())
        assert hook.problems == []
    view = open_run(tmp_path / "run").tensor("updates/dense.kernel")
    for number in range(3):
        np.testing.assert_array_equal(view.value(number), kernels[number + 1] - kernels[number])


@pytest.mark.thorough
def test_the_record_describes_the_compilation(tmp_path: Path) -> None:
    inputs = keras.Input((4,))
    heads = {"x": keras.layers.Dense(1, name="x"), "y": keras.layers.Dense(2, name="y")}
    model = keras.Model(inputs, {name: layer(inputs) for name, layer in heads.items()})
    hook = Hook(tmp_path / "run").watch(model)
    heads["x"].trainable = False
    schedule = keras.optimizers.schedules.ExponentialDecay(0.1, 10, 0.5)
    crossentropy = keras.losses.CategoricalCrossentropy(from_logits=True, label_smoothing=0.1)
    model.compile(keras.optimizers.Adam(schedule), {"x": "mse", "y": crossentropy})
    model.fit(np.ones((8, 4)), {"x": np.ones((8, 1)), "y": np.ones((8, 2))}, verbose=0)
    hook.close()
    assert hook.problems == []
    found = json.loads((tmp_path / "run" / "run.json").read_text())
    assert found["losses"]["x_loss"]["type"] == "mean_squared_error"
    assert found["losses"]["y_loss"]["type"] == "CategoricalCrossentropy"
    settings = found["losses"]["y_loss"]["settings"]
    assert settings["from_logits"] is True
    assert settings["label_smoothing"] == 0.1
    assert settings["reduction"] == "sum_over_batch_size"
    (told,) = found["optimizers"]
    assert (told["type"], told["parameters"], told["tensors"]) == ("Adam", 10, 2)
    assert told["settings"]["lr"] == 0.1
    assert told["settings"]["schedule"] == "ExponentialDecay"
    assert found["frozen"] == ["weights/x.kernel", "biases/x.bias"]
    assert found["unoptimized"] == []


def test_only_some_rows_of_a_batch_are_kept(tmp_path: Path) -> None:
    x = np.random.default_rng(0).normal(size=(16, 4)).astype(np.float32)
    model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(3)])
    model.compile("sgd", "mse")
    some = SaveConfig(every=1, rows=5, tensor=True, reductions=("mean",))
    with Hook(tmp_path / "run", collections=dict.fromkeys(("inputs", "labels"), some)) as hook:
        hook.watch(model)
        model.fit(x, x[:, :3], batch_size=16, verbose=0, shuffle=False)
        assert hook.problems == []
    run = open_run(tmp_path / "run")
    rows = [0, 4, 8, 11, 15]
    np.testing.assert_array_equal(run.tensor("inputs/dense").value(0), x[rows])
    np.testing.assert_array_equal(run.tensor("labels/batch").value(0), x[rows, :3])
    figure = run.tensor("inputs/dense").reduction("mean").values[0]
    assert figure == pytest.approx(float(x.mean()), rel=1e-5)


@pytest.mark.thorough
def test_steps_are_measured(tmp_path: Path) -> None:
    x = np.zeros((16, 4), np.float32)
    model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(3)])
    model.compile("sgd", "mse")
    with Hook(tmp_path / "run", collections={"timing": SaveConfig(every=2)}) as hook:
        hook.watch(model)
        model.fit(x, x[:, :3], batch_size=4, epochs=2, verbose=0, validation_data=(x, x[:, :3]))
        assert hook.problems == []
    times = open_run(tmp_path / "run").scalars("timing", mode="train")
    assert sorted(times) == ["timing/evaluation", "timing/step"]
    assert times["timing/step"].steps.tolist() == [2, 4, 6]
    # The validation after the first epoch.
    assert times["timing/evaluation"].steps.tolist() == [4]
    assert times["timing/step"].values.min() > 0
