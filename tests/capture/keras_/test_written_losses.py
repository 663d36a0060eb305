"""Losses that a loop with a gradient tape computes itself tell what they compare, or nothing."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.capture.keras_.zoo import everything, seeded

import keras  # isort: skip
import tensorflow as tf  # isort: skip
from tensorflow.python.eager import context  # isort: skip
from vinedresser.capture import Hook, Run, open_run

# Raised by Keras itself when it converts a variable to an array.
pytestmark = pytest.mark.filterwarnings("ignore:__array__ implementation:DeprecationWarning")

_STEPS = 2
_RNG = np.random.default_rng(0)
_X = _RNG.normal(size=(6, 4)).astype("float32")
_Y = _RNG.normal(size=(6, 3)).astype("float32")
_CLASSES = np.arange(6) % 3
_YES = (_Y > 0).astype("float32")
_SIGNED = np.array([0.5, -1, 2, -0.1, 1, -3], "float32")
# Returns the loss of the output of a model and its batch.
LossOf = Callable[[Any, dict[str, Any]], Any]


@pytest.fixture(params=["line by line", pytest.param("tf.function", marks=pytest.mark.thorough)])
def compiled(request: pytest.FixtureRequest) -> Callable[[Any], Any]:
    return tf.function if request.param == "tf.function" else lambda step: step


def dense() -> Any:
    return keras.Sequential([keras.Input((4,)), keras.layers.Dense(3)])


def stepped(
    compiled: Callable[[Any], Any], loss_of: LossOf, make: Any = dense
) -> Callable[[], Any]:
    """Return a function that makes a training step; its model is an attribute."""
    model, optimizer = seeded(make), keras.optimizers.Adam(0.01)
    given = {"x": _X, "y": _Y, "classes": _CLASSES, "yes": _YES, "signed": _SIGNED}
    batch = {name: tf.constant(value) for name, value in given.items()}

    def train(batch: dict[str, Any]) -> Any:
        with tf.GradientTape() as tape:
            loss = loss_of(model(batch["x"], training=True), batch)
        gradients = tape.gradient(loss, model.trainable_variables)
        optimizer.apply(gradients, model.trainable_variables)
        return loss

    step = compiled(train)

    def run() -> Any:
        return step(batch)

    run.model = model  # type: ignore[attr-defined]
    return run


def trained(path: Path, compiled: Callable[[Any], Any], loss_of: LossOf, make: Any = dense) -> Run:
    step = stepped(compiled, loss_of, make)
    with Hook(path / "run", collections=everything()) as hook:
        hook.watch(step.model)  # type: ignore[attr-defined]
        for _ in range(_STEPS):
            step()
    assert hook.problems == []
    assert context.context().op_callbacks == []
    return open_run(path / "run")


def mean_of_squares(output: Any, batch: dict[str, Any]) -> Any:
    return tf.reduce_mean((batch["y"] - output) ** 2)


def with_penalty(output: Any, batch: dict[str, Any]) -> Any:
    sums = tf.reduce_sum(tf.square(output - batch["y"])) / tf.cast(len(batch["y"]), tf.float32)
    return 0.5 * sums + 0.1 * tf.reduce_mean(tf.square(output))


def root_of_a_column(output: Any, batch: dict[str, Any]) -> Any:
    column = tf.squeeze(output[:, 1:2], -1)
    return tf.sqrt(tf.reduce_mean(tf.math.squared_difference(batch["y"][:, 1], column)))


def raised(output: Any, batch: dict[str, Any]) -> Any:
    return -keras.ops.mean(keras.ops.abs(output - batch["y"]))


def binary(output: Any, batch: dict[str, Any]) -> Any:
    p, yes = tf.clip_by_value(tf.sigmoid(output), 1e-6, 1 - 1e-6), batch["yes"]
    return -tf.reduce_mean(yes * tf.math.log(p) + (1 - yes) * tf.math.log(1 - p))


def classes(output: Any, batch: dict[str, Any]) -> Any:
    likelihoods = tf.one_hot(batch["classes"], 3) * tf.nn.log_softmax(output)
    return -tf.reduce_mean(tf.reduce_sum(likelihoods, 1))


def function_in_a_sum(output: Any, batch: dict[str, Any]) -> Any:
    rows = tf.nn.sparse_softmax_cross_entropy_with_logits(batch["classes"], output)
    return tf.reduce_mean(rows) + 0.01 * tf.reduce_sum(output**2)


def function_of_logits_in_a_sum(output: Any, batch: dict[str, Any]) -> Any:
    rows = keras.losses.binary_crossentropy(batch["yes"], output, True)
    return tf.reduce_mean(rows) + 0.01 * tf.reduce_sum(output**2)


def sigmoid(output: Any) -> Any:
    return 1 / (1 + np.exp(-output))


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("loss_of", "function", "labels", "of"),
    [
        (mean_of_squares, "mean_squared_error", _Y, np.copy),
        (with_penalty, "mean_squared_error", _Y, np.copy),
        (root_of_a_column, "mean_squared_error", _Y[:, 1], lambda output: output[:, 1]),
        (raised, "mean_absolute_error", _Y, np.copy),
        (binary, "binary_crossentropy", _YES, sigmoid),
        (classes, "softmax_cross_entropy_with_logits", np.eye(3)[_CLASSES], np.copy),
        (function_of_logits_in_a_sum, "sigmoid_cross_entropy_with_logits", _YES, np.copy),
        (function_in_a_sum, "sparse_softmax_cross_entropy_with_logits", _CLASSES, np.copy),
    ],
)
def test_labels_and_predictions_are_captured(
    loss_of: LossOf,
    *,
    function: str,
    labels: Any,
    of: Callable[[Any], Any],
    compiled: Callable[[Any], Any],
    tmp_path: Path,
) -> None:
    run = trained(tmp_path, compiled, loss_of)
    described = {"function": function, "negated": loss_of is raised, "activation": ""}
    assert run.info.losses == {"loss": described}
    for step in range(_STEPS):
        assert np.array_equal(run.tensor("labels/batch").value(step), labels)
        wanted = of(run.tensor("outputs/dense").value(step))
        np.testing.assert_allclose(run.tensor("predictions/batch").value(step), wanted, rtol=1e-5)


def weighted_squares(output: Any, batch: dict[str, Any]) -> Any:
    return tf.reduce_mean(batch["signed"][:, None] * tf.square(output - batch["y"]))


def policy_gradient_with_critic(output: Any, batch: dict[str, Any]) -> Any:
    chosen = tf.reduce_sum(
        tf.one_hot(batch["classes"] % 2, 2) * tf.nn.log_softmax(output[:, :2]), 1
    )
    critic = tf.reduce_mean((batch["signed"] - output[:, 2]) ** 2)
    return critic - tf.reduce_mean(chosen * batch["signed"])


def values_of_actions(output: Any, batch: dict[str, Any]) -> Any:
    chosen = tf.reduce_sum(output * tf.one_hot(batch["classes"], 3), 1)
    return tf.reduce_mean((batch["signed"] - chosen) ** 2)


def of_itself(output: Any, _: dict[str, Any]) -> Any:
    return tf.reduce_mean((output - tf.stop_gradient(tf.roll(output, 1, 0))) ** 2)


def mixed(output: Any, batch: dict[str, Any]) -> Any:
    others = batch["y"][::-1]
    return 0.3 * mean_of_squares(output, batch) + 0.7 * tf.reduce_mean((output - others) ** 2)


def to_one_number(output: Any, _: dict[str, Any]) -> Any:
    return tf.reduce_mean(tf.square(tf.norm(output, axis=1) - 1.0))


def advantages_in_classes(output: Any, batch: dict[str, Any]) -> Any:
    weights = tf.one_hot(batch["classes"], 3) * batch["signed"][:, None]
    return -tf.reduce_mean(tf.reduce_sum(weights * tf.nn.log_softmax(output), 1))


@pytest.mark.thorough
@pytest.mark.parametrize(
    "loss_of",
    [
        weighted_squares,
        policy_gradient_with_critic,
        values_of_actions,
        of_itself,
        mixed,
        to_one_number,
        advantages_in_classes,
    ],
)
def test_what_is_uncertain_is_not_captured(
    loss_of: LossOf, compiled: Callable[[Any], Any], tmp_path: Path
) -> None:
    run = trained(tmp_path, compiled, loss_of)
    assert run.scalar_names(collection="losses") == ["losses/loss"]
    assert run.info.losses == {}
    assert run.tensor_names(collection="labels") == []


def test_of_several_outputs_the_compared_one_is_captured(
    compiled: Callable[[Any], Any], tmp_path: Path
) -> None:
    """As of a variational autoencoder, whose loss has another term of the other outputs."""

    def make() -> Any:
        inputs = keras.Input((4,))
        return keras.Model(inputs, [keras.layers.Dense(4)(inputs), keras.layers.Dense(2)(inputs)])

    def loss_of(outputs: Any, batch: dict[str, Any]) -> Any:
        again, latent = outputs
        rows = tf.reduce_sum(tf.square(batch["x"] - again), 1)
        return tf.reduce_mean(rows) + 0.5 * tf.reduce_mean(tf.square(latent) + tf.exp(latent))

    run = trained(tmp_path, compiled, loss_of, make)
    assert np.array_equal(run.tensor("labels/batch").value(0), _X)
    predictions = run.tensor("predictions/batch").value(1)
    assert np.array_equal(predictions, run.tensor("outputs/dense").value(1))


def test_a_loss_object_made_in_each_step_compares_a_function_of_the_output(
    compiled: Callable[[Any], Any], tmp_path: Path
) -> None:
    def loss_of(output: Any, batch: dict[str, Any]) -> Any:
        loss = keras.losses.SparseCategoricalCrossentropy()
        return loss(batch["classes"], tf.nn.softmax(output))

    run = trained(tmp_path, compiled, loss_of)
    assert run.tensor("labels/batch").steps().tolist() == list(range(_STEPS))
    predictions = run.tensor("predictions/batch").value(0)
    np.testing.assert_allclose(predictions.sum(1), 1, rtol=1e-5)


def test_the_training_is_the_same_bits(compiled: Callable[[Any], Any], tmp_path: Path) -> None:
    ends = []
    for collections in (None, everything()):
        step = stepped(compiled, with_penalty)
        model = step.model  # type: ignore[attr-defined]
        if collections is None:
            losses = [step().numpy() for _ in range(4)]
        else:
            with Hook(tmp_path / "run", collections=collections).watch(model):
                losses = [step().numpy() for _ in range(4)]
        ends.append([*losses, *(variable.numpy().tobytes() for variable in model.variables)])
    assert ends[0] == ends[1]


def test_a_step_that_fails_leaves_no_callback(tmp_path: Path) -> None:
    def loss_of(output: Any, batch: dict[str, Any]) -> Any:
        raise RuntimeError

    step = stepped(lambda one: one, loss_of)
    with Hook(tmp_path / "run", collections=everything()) as hook:
        hook.watch(step.model)  # type: ignore[attr-defined]
        with suppress(RuntimeError):
            step()
    assert context.context().op_callbacks == []
