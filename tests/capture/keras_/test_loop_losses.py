"""Losses, labels and predictions of loops with gradient tapes that tell the hook of none."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.capture.keras_.zoo import cnn, everything, images, seeded

import keras  # isort: skip
import tensorflow as tf  # isort: skip
from vinedresser.capture import Hook, Run, open_run
from vinedresser.store.collections.schedule import SaveConfig

# Raised by Keras itself when it converts a variable to an array.
pytestmark = pytest.mark.filterwarnings("ignore:__array__ implementation:DeprecationWarning")

_STEPS = 3
_LOSS = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
# Makes the function that is run in each step, line by line or compiled.
Compile = Callable[[Callable[..., Any]], Any]


@pytest.fixture(params=["line by line", "tf.function"])
def compiled(request: pytest.FixtureRequest) -> Compile:
    return tf.function if request.param == "tf.function" else lambda step: step


def batches() -> list[tuple[Any, Any]]:
    """Return a batch for each step."""
    x, y = images()
    parts = [slice(8 * step, 8 * step + 8) for step in range(_STEPS)]
    return [(tf.constant(x[part]), tf.constant(y[part])) for part in parts]


def trained(
    path: Path,
    compiled: Compile,
    loss_of: Callable[[Any, Any, Any], Any],
    optimizer: Any = None,
    *,
    before: Callable[[Hook], object] = lambda hook: None,
) -> tuple[Run, list[float]]:
    """Train with a loop of a gradient tape; return the run and the loss of each step.

    Args:
        path: parent directory of the run.
        compiled: makes the step.
        loss_of: returns the loss of the model, its output and the labels.
        optimizer: the optimizer; default: SGD.
        before: receives the hook before the training.
    """
    model, optimizer = seeded(cnn), optimizer or keras.optimizers.SGD(0.1)

    def train(x: Any, y: Any) -> Any:
        with tf.GradientTape() as tape:
            loss = loss_of(model, model(x, training=True), y)
        gradients = tape.gradient(loss, model.trainable_variables)
        optimizer.apply(gradients, model.trainable_variables)
        return loss

    with Hook(path / "run", collections=everything()) as hook:
        hook.watch(model)
        before(hook)
        step = compiled(train)
        losses = [float(tf.reduce_sum(step(x, y))) for x, y in batches()]
    assert hook.problems == []
    return open_run(path / "run"), losses


def recorded(run: Run) -> dict[str, list[float]]:
    """Return the losses of the train steps."""
    return {name: one.values.tolist() for name, one in run.scalars("losses", mode="train").items()}


@pytest.mark.thorough
def test_the_loss_its_labels_and_predictions_are_captured(
    compiled: Compile, tmp_path: Path
) -> None:
    run, losses = trained(tmp_path, compiled, lambda _, output, y: _LOSS(y, output))
    assert recorded(run) == {"losses/loss": losses}
    described = run.info.losses["loss"]
    assert described["type"] == "SparseCategoricalCrossentropy"
    assert described["settings"]["from_logits"] is True
    for step, (_, y) in enumerate(batches()):
        assert np.array_equal(run.tensor("labels/batch").value(step), y)
        predictions = run.tensor("predictions/batch").value(step)
        assert np.array_equal(predictions, run.tensor("outputs/dense").value(step))
        assert float(_LOSS(y, predictions)) == pytest.approx(losses[step], rel=1e-5)


@pytest.mark.thorough
def test_of_a_sum_the_loss_object_is_not_named(compiled: Compile, tmp_path: Path) -> None:
    def loss_of(model: Any, output: Any, y: Any) -> Any:
        return _LOSS(y, output) + tf.reduce_sum(model.trainable_variables[0] ** 2)

    run, losses = trained(tmp_path, compiled, loss_of)
    assert recorded(run) == {"losses/loss": losses}
    assert run.info.losses == {}
    assert run.tensor("labels/batch").steps().tolist() == [0, 1, 2]


@pytest.mark.thorough
def test_the_negative_of_a_loss_is_described(compiled: Compile, tmp_path: Path) -> None:
    run, losses = trained(tmp_path, compiled, lambda _, output, y: -_LOSS(y, output))
    assert recorded(run) == {"losses/loss": losses}
    assert run.info.losses["loss"] == {
        "function": "SparseCategoricalCrossentropy",
        "negated": True,
        "activation": "",
    }


def scores_of(_: Any, output: Any, y: Any) -> Any:
    return tf.nn.sparse_softmax_cross_entropy_with_logits(y, output)


def errors_of(_: Any, output: Any, y: Any) -> Any:
    return keras.losses.mean_squared_error(tf.one_hot(y, output.shape[-1]), output)


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("rows_of", "reduce", "described"),
    [
        (
            scores_of,
            tf.reduce_mean,
            {"type": "sparse_softmax_cross_entropy_with_logits", "settings": {"reduction": "mean"}},
        ),
        (
            errors_of,
            tf.reduce_sum,
            {"type": "mean_squared_error", "settings": {"reduction": "sum"}},
        ),
        (
            scores_of,
            lambda rows: -1.0 * tf.reduce_mean(rows),
            {
                "function": "sparse_softmax_cross_entropy_with_logits",
                "negated": True,
                "activation": "",
            },
        ),
    ],
    ids=["mean", "sum", "negated"],
)
def test_functions_have_labels_and_predictions(
    rows_of: Any, reduce: Any, described: dict[str, Any], compiled: Compile, tmp_path: Path
) -> None:
    run, losses = trained(tmp_path, compiled, lambda *given: reduce(rows_of(*given)))
    assert recorded(run) == {"losses/loss": losses}
    assert run.info.losses["loss"] == described
    for step, (_, y) in enumerate(batches()):
        labels = run.tensor("labels/batch").value(step)
        predictions = run.tensor("predictions/batch").value(step)
        assert np.array_equal(labels if labels.ndim == 1 else labels.argmax(1), y)
        assert np.array_equal(predictions, run.tensor("outputs/dense").value(step))


def weighted(model: Any, output: Any, y: Any) -> Any:
    advantages = tf.constant(np.linspace(-1, 2, len(y)).astype("float32"))
    return tf.reduce_mean(advantages * scores_of(model, output, y))


def of_which_one_is_raised(model: Any, output: Any, y: Any) -> Any:
    return tf.reduce_mean(scores_of(model, output, y) * tf.constant(np.arange(8.0) - 4, "float32"))


@pytest.mark.thorough
@pytest.mark.parametrize("loss_of", [weighted, of_which_one_is_raised])
def test_of_other_losses_a_function_says_nothing(
    loss_of: Any, compiled: Compile, tmp_path: Path
) -> None:
    run, losses = trained(tmp_path, compiled, loss_of)
    assert recorded(run) == {"losses/loss": losses}
    assert run.info.losses == {}
    assert run.tensor_names(collection="labels") == []


@pytest.mark.thorough
def test_a_metric_of_the_same_output_is_no_comparison(compiled: Compile, tmp_path: Path) -> None:
    metric = keras.metrics.SparseCategoricalCrossentropy(from_logits=True)

    def loss_of(_: Any, output: Any, y: Any) -> Any:
        metric.update_state(y, output)
        return _LOSS(y, output)

    run, _ = trained(tmp_path, compiled, loss_of)
    assert run.info.losses["loss"]["type"] == "SparseCategoricalCrossentropy"
    assert run.tensor("labels/batch").steps().tolist() == [0, 1, 2]


def test_functions_are_left_as_they_were(tmp_path: Path) -> None:
    before = [
        tf.nn.sparse_softmax_cross_entropy_with_logits,
        keras.losses.mean_squared_error,
        tf.keras.losses.mse,
    ]
    trained(tmp_path, lambda step: step, lambda *given: tf.reduce_mean(errors_of(*given)))
    assert before == [
        tf.nn.sparse_softmax_cross_entropy_with_logits,
        keras.losses.mean_squared_error,
        tf.keras.losses.mse,
    ]


@pytest.mark.thorough
def test_the_target_of_several_numbers_is_not_captured(compiled: Compile, tmp_path: Path) -> None:
    rows = keras.losses.SparseCategoricalCrossentropy(from_logits=True, reduction=None)
    run, _ = trained(tmp_path, compiled, lambda _, output, y: rows(y, output))
    assert recorded(run) == {}


@pytest.mark.thorough
def test_a_scaled_loss_is_not_captured(compiled: Compile, tmp_path: Path) -> None:
    optimizer = keras.optimizers.SGD(0.1, loss_scale_factor=8.0)

    def loss_of(_: Any, output: Any, y: Any) -> Any:
        return optimizer.scale_loss(_LOSS(y, output))

    run, _ = trained(tmp_path, compiled, loss_of, optimizer)
    assert recorded(run) == {}


def test_a_reported_loss_is_the_only_one(tmp_path: Path) -> None:
    run, _ = trained(
        tmp_path,
        lambda step: step,
        lambda _, output, y: _LOSS(y, output),
        before=lambda hook: hook.save("losses/own", 1.0),
    )
    assert recorded(run) == {"losses/own": [1.0]}
    assert run.tensor("predictions/batch").steps().tolist() == [0, 1, 2]


@pytest.mark.thorough
@pytest.mark.parametrize(
    "compare", [_LOSS, lambda y, output: tf.reduce_mean(scores_of(None, output, y))]
)
def test_an_evaluation_has_the_loss_its_labels_and_predictions(
    compare: Callable[[Any, Any], Any], tmp_path: Path
) -> None:
    model, optimizer = seeded(cnn), keras.optimizers.SGD(0.1)
    with Hook(tmp_path / "run", collections=everything()) as hook:
        hook.watch(model)
        for x, y in batches():
            with tf.GradientTape() as tape:
                loss = compare(y, model(x, training=True))
            optimizer.apply(
                tape.gradient(loss, model.trainable_variables), model.trainable_variables
            )
        values = [float(compare(y, model(x, training=False))) for x, y in batches()]
    run = open_run(tmp_path / "run")
    found = run.scalars("losses", mode="eval")["losses/loss"].values
    assert found.tolist() == pytest.approx([float(np.mean(values))])
    assert np.array_equal(run.tensor("labels/batch").value(_STEPS, mode="eval"), batches()[0][1])


@pytest.mark.thorough
@pytest.mark.parametrize("accumulated", [True, False])
def test_gradients_of_several_losses(accumulated: bool, compiled: Compile, tmp_path: Path) -> None:
    """Of several batches, the last loss is captured; of several losses of one batch, none."""
    model, optimizer = seeded(cnn), keras.optimizers.SGD(0.1)

    def train(x: Any, y: Any) -> Any:
        losses, sums = [], [tf.zeros_like(variable) for variable in model.trainable_variables]
        with tf.GradientTape(persistent=True) as tape:
            if accumulated:
                losses = [_LOSS(part, model(rows, training=True)) for rows, part in halves(x, y)]
            else:
                output = model(x, training=True)
                losses = [_LOSS(y, output), tf.reduce_mean(output**2)]
        for loss in losses:
            found = tape.gradient(loss, model.trainable_variables)
            sums = [total + one for total, one in zip(sums, found, strict=True)]
        optimizer.apply(sums, model.trainable_variables)
        return losses[-1]

    with Hook(tmp_path / "run", collections=everything()) as hook:
        hook.watch(model)
        step = compiled(train)
        last = [float(step(x, y)) for x, y in batches()]
    assert hook.problems == []
    run = open_run(tmp_path / "run")
    assert recorded(run) == ({"losses/loss": last} if accumulated else {})
    # Nor can those labels be told that belong to all of the step.
    assert (run.tensor_names(collection="labels") == []) == accumulated


def halves(x: Any, y: Any) -> list[tuple[Any, Any]]:
    """Return both halves of a batch."""
    return [(x[:4], y[:4]), (x[4:], y[4:])]


@pytest.mark.thorough
def test_two_tapes_of_adversaries(compiled: Compile, tmp_path: Path) -> None:
    keras.utils.set_random_seed(3)
    maker = keras.Sequential([keras.Input((4,)), keras.layers.Dense(6)])
    critic = keras.Sequential([keras.Input((6,)), keras.layers.Dense(1)])
    binary = keras.losses.BinaryCrossentropy(from_logits=True)
    made, criticised = keras.optimizers.SGD(0.1), keras.optimizers.SGD(0.1)

    def train(noise: Any, real: Any) -> Any:
        with tf.GradientTape() as first, tf.GradientTape() as second:
            fake = maker(noise, training=True)
            yes, no = critic(real, training=True), critic(fake, training=True)
            wanted = binary(tf.ones_like(no), no)
            told = binary(tf.ones_like(yes), yes) + binary(tf.zeros_like(no), no)
        gradients = first.gradient(wanted, maker.trainable_variables)
        others = second.gradient(told, critic.trainable_variables)
        made.apply(gradients, maker.trainable_variables)
        criticised.apply(others, critic.trainable_variables)
        return wanted, told

    with Hook(tmp_path / "run", collections=everything()) as hook:
        hook.watch(maker, name="maker").watch(critic, optimizer=criticised, name="critic")
        step = compiled(train)
        both = [step(tf.ones((8, 4)), tf.ones((8, 6))) for _ in range(_STEPS)]
    assert hook.problems == []
    run = open_run(tmp_path / "run")
    assert recorded(run) == {
        "losses/maker.loss": [float(wanted) for wanted, _ in both],
        "losses/critic.loss": [float(told) for _, told in both],
    }
    # Ones and zeros are no labels of the data.
    assert run.tensor_names(collection="labels") == []


@pytest.mark.thorough
def test_outputs_are_not_kept(tmp_path: Path) -> None:
    """Of many forward passes in training mode without an update, as for uncertain predictions."""
    model, (x, y) = seeded(cnn), batches()[0]
    with Hook(tmp_path / "run", collections=everything()) as hook:
        hook.watch(model)
        kept = []
        for _ in range(20):
            output = model(x, training=True)
            _LOSS(y, output)
            kept.append(weakref.ref(output))
        del output
        gc.collect()
        assert sum(one() is not None for one in kept) <= 1


@pytest.mark.thorough
def test_calls_between_updates_are_those_of_an_agent(compiled: Compile, tmp_path: Path) -> None:
    model, optimizer = seeded(cnn), keras.optimizers.SGD(0.1)

    def train(x: Any, y: Any) -> None:
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean(_LOSS(y, model(x, training=True)))
        gradients = tape.gradient(loss, model.trainable_variables)
        optimizer.apply(gradients, model.trainable_variables)

    with Hook(tmp_path / "run", collections={"state": SaveConfig(every=1)}) as hook:
        hook.watch(model)
        step = compiled(train)
        # Not before the first step, where a call may only build the model.
        model(batches()[0][0])
        for x, y in (*batches(), *batches()):
            step(x, y)
            model(x)
    assert hook.problems == []
    acted = open_run(tmp_path / "run").scalars("state")["state/acts"]
    assert acted.steps.tolist() == [1, 2, 3, 4, 5]
    assert acted.values.tolist() == [1.0] * 5
