"""Loops of the user's own with Keras: gradient tapes, line by line and in a tf.function."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.capture.keras_.zoo import cnn, everything, images, seeded

import keras  # isort: skip
import tensorflow as tf  # isort: skip
from vinedresser.capture import Hook, Run, SaveConfig, open_run

# Raised by Keras itself when it converts a variable to an array.
pytestmark = pytest.mark.filterwarnings("ignore:__array__ implementation:DeprecationWarning")

_STEPS = 3


class CustomLoop:
    """A training loop that records its own computations.

    Args:
        hook: watches its model.
        compiled: the step is a tf.function.
    """

    def __init__(self, hook: Hook, *, compiled: bool) -> None:
        self.model = seeded(cnn)
        self.optimizer = keras.optimizers.SGD(0.1)
        self.loss_fn = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
        self.notes: list[tuple[float, list[Any], list[Any]]] = []
        hook.watch(self.model, loss=self.loss_fn)
        self.step: Any = tf.function(self._step) if compiled else self._step
        self.look: Any = tf.function(self._look) if compiled else self._look

    def _step(self, x: Any, y: Any) -> Any:
        with tf.GradientTape() as tape:
            loss = self.loss_fn(y, self.model(x, training=True))
        gradients = tape.gradient(loss, self.model.trainable_variables)
        self.optimizer.apply(gradients, self.model.trainable_variables)
        return loss, gradients

    def _look(self, x: Any, y: Any) -> Any:
        return self.loss_fn(y, self.model(x, training=False))

    def run(self) -> None:
        x, y = images()
        for start in range(0, 8 * _STEPS, 8):
            weights = [variable.numpy() for variable in self.model.trainable_variables]
            batch = slice(start, start + 8)
            loss, gradients = self.step(tf.constant(x[batch]), tf.constant(y[batch]))
            self.notes.append((float(loss), weights, [gradient.numpy() for gradient in gradients]))


@pytest.fixture(params=["line by line", "tf.function"])
def loop(request: pytest.FixtureRequest, tmp_path: Path) -> tuple[CustomLoop, Hook]:
    hook = Hook(tmp_path / "run", collections=everything())
    return CustomLoop(hook, compiled=request.param == "tf.function"), hook


def _closed(hook: Hook) -> Run:
    hook.close()
    return open_run(hook.path)


@pytest.mark.thorough
def test_each_update_is_a_step_with_its_weights_gradients_and_loss(
    loop: tuple[CustomLoop, Hook],
) -> None:
    training, hook = loop
    training.run()
    run = _closed(hook)
    assert hook.problems == []
    assert run.steps("train").tolist() == list(range(_STEPS))
    name = f"losses/{training.loss_fn.name}"
    losses = run.scalars("losses", mode="train")[name].values
    assert losses.tolist() == pytest.approx([loss for loss, _, _ in training.notes])
    for step, (_, weights, gradients) in enumerate(training.notes):
        assert np.array_equal(run.tensor("weights/conv2d.kernel").value(step), weights[0])
        assert np.array_equal(run.tensor("gradients/conv2d.kernel").value(step), gradients[0])
        assert np.array_equal(run.tensor("gradients/dense.bias").value(step), gradients[-1])
    assert run.tensor("outputs/re_lu").value(2).shape == (8, 4, 4, 4)


@pytest.mark.thorough
def test_a_plain_call_is_an_evaluation_only_in_eval_mode(
    loop: tuple[CustomLoop, Hook],
) -> None:
    training, hook = loop
    x, y = images()
    training.run()
    with hook.mode("eval"):
        # Otherwise the first call would trace it.
        for start in (0, 8):
            training.look(tf.constant(x[start : start + 8]), tf.constant(y[start : start + 8]))
    run = _closed(hook)
    assert run.steps("eval").tolist() == [_STEPS]
    exact = training.model(x[:8], training=False)
    assert np.allclose(run.tensor("outputs/dense").value(_STEPS, mode="eval"), exact, atol=1e-5)
    parts = [(x[i : i + 8], y[i : i + 8]) for i in (0, 8)]
    mean = np.mean([float(training.loss_fn(y, training.model(x))) for x, y in parts])
    found = run.scalars("losses", mode="eval")[f"losses/{training.loss_fn.name}"].values
    assert found.tolist() == pytest.approx([float(mean)], rel=1e-5)


@pytest.mark.thorough
def test_unsaved_steps_run_the_original_function(tmp_path: Path) -> None:
    collections = {name: SaveConfig(every=0) for name in ("losses", "metrics", "saved")}
    collections["gradients"] = SaveConfig(steps=(1,), every=0)
    with Hook(tmp_path / "run", collections=collections) as hook:
        training = CustomLoop(hook, compiled=True)
        training.run()
        assert training.step.experimental_get_tracing_count() == 1
    run = open_run(tmp_path / "run")
    assert run.steps("train").tolist() == [1]
    expected = training.notes[1][2][0]
    assert np.array_equal(run.tensor("gradients/conv2d.kernel").value(1), expected)


@pytest.mark.thorough
def test_steps_of_a_loop_inside_a_function_are_counted_and_reported(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    with Hook(tmp_path / "run", collections=everything()) as hook:
        training = CustomLoop(hook, compiled=False)
        x, y = images()

        def several(x: Any, y: Any) -> None:
            for _ in tf.range(3):
                training._step(x, y)

        epoch = tf.function(several)
        training.model(x[:1])
        training.optimizer.build(training.model.trainable_variables)
        epoch(tf.constant(x), tf.constant(y))
        epoch(tf.constant(x), tf.constant(y))
        assert hook._session.recorder.steps == 6
    said = capfd.readouterr().err
    assert "computed inside a loop" in said
    assert "makes 3 optimizer steps" in said


def test_an_inaccessible_function_is_reported(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    with Hook(tmp_path / "run", collections=everything()) as hook:
        training = CustomLoop(hook, compiled=True)
        x, y = (tf.constant(image) for image in images())
        training.step.get_concrete_function(x, y)(x, y)
    assert "get_concrete_function" in capfd.readouterr().err


@pytest.mark.thorough
def test_two_models_in_one_function(tmp_path: Path) -> None:
    left, right = (keras.Sequential([keras.Input((3,)), keras.layers.Dense(3)]) for _ in range(2))
    optimizers = keras.optimizers.SGD(0.1), keras.optimizers.SGD(0.1)
    with Hook(tmp_path / "run", collections=everything()) as hook:
        hook.watch(left, optimizer=optimizers[0], name="left")
        hook.watch(right, optimizer=optimizers[1], name="right")

        def train(x: Any) -> None:
            with tf.GradientTape(persistent=True) as tape:
                loss = tf.reduce_mean(right(left(x)) ** 2)
            for model, optimizer in zip((left, right), optimizers, strict=True):
                gradients = tape.gradient(loss, model.trainable_variables)
                optimizer.apply(gradients, model.trainable_variables)

        step = tf.function(train)
        for _ in range(2):
            step(tf.ones((2, 3)))
        assert hook.problems == []
    run = open_run(tmp_path / "run")
    assert run.steps("train").tolist() == [0, 1]
    for kind in ("weights", "gradients"):
        assert {f"{kind}/left.dense.kernel", f"{kind}/right.dense.kernel"} <= set(
            run.tensor_names()
        )
    assert np.array_equal(
        run.tensor("outputs/left.dense").value(1), run.tensor("inputs/right.dense").value(1)
    )


class OwnFlag(keras.Model):  # type: ignore[misc]
    """A model whose dropout follows a flag of its own."""

    def __init__(self) -> None:
        super().__init__()
        self.dropout = keras.layers.Dropout(0.5)
        self.dense = keras.layers.Dense(1)

    def call(self, x: Any, is_training: bool = False) -> Any:
        return self.dense(self.dropout(x, training=is_training))


def functional() -> keras.Model:
    return keras.Sequential([keras.layers.Dropout(0.5), keras.layers.Dense(1)])


@pytest.mark.parametrize(
    ("model", "flags", "recorded"),
    [
        (functional, {"training": True}, [1.0]),
        (functional, {}, [0.0]),
        (OwnFlag, {"is_training": True}, []),
    ],
    ids=["given", "forgotten", "another name"],
)
def test_the_training_flag_is_recorded_where_it_is_seen(
    model: Any, flags: dict[str, bool], recorded: list[float], tmp_path: Path
) -> None:
    net, x = model(), tf.ones((4, 3))
    net(x)
    optimizer = keras.optimizers.SGD(0.1)
    with Hook(tmp_path / "run", collections={"state": SaveConfig(every=1)}) as hook:
        hook.watch(net, optimizer=optimizer)
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean(net(x, **flags))
        gradients = tape.gradient(loss, net.trainable_variables)
        optimizer.apply(gradients, net.trainable_variables)
    assert hook.problems == []
    states = open_run(tmp_path / "run").scalars("state", mode="train")
    assert "state/training" in states if recorded else not states
    assert all(column.values.tolist() == recorded for column in states.values())
