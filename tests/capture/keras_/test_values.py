"""Captured tensors of a Keras training equal those that it computed."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.capture.keras_.zoo import (
    Residual,
    Transformer,
    classifier,
    cnn,
    everything,
    images,
    seeded,
    sentences,
)

import keras  # isort: skip
import tensorflow as tf  # isort: skip
from vinedresser.capture import Collection, Hook, Run, SaveConfig, open_run

# Raised by Keras itself when it converts a variable to an array.
pytestmark = pytest.mark.filterwarnings("ignore:__array__ implementation:DeprecationWarning")


_LAYERS = ("conv2d", "batch_normalization", "conv2d_1", "re_lu", "flatten", "dropout", "dense")


class Notes(keras.callbacks.Callback):  # type: ignore[misc]
    """Keras callback that records the weights before and the logs after each batch."""

    def __init__(self) -> None:
        super().__init__()
        self.weights: list[list[Any]] = []
        self.logs: list[dict[str, float]] = []

    def on_train_batch_begin(self, batch: int, logs: Any = None) -> None:
        self.weights.append(self.model.get_weights())

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        self.logs.append({name: float(value) for name, value in (logs or {}).items()})


def plain(dropout: bool = False) -> Any:
    """Return the CNN, whose forward can be done again where it drops nothing."""
    model = cnn()
    if not dropout:
        model.get_layer(index=5).rate = 0.0
    return model


def fitted(folder: Path, model: Any, data: Any, **more: Any) -> tuple[Run, Notes]:
    """Train with everything captured at every step; return run and notes."""
    notes = Notes()
    with Hook(folder, collections=everything()) as hook:
        hook.watch(model)
        model.fit(*data, **{"batch_size": 8, "verbose": 0, "callbacks": [notes]} | more)
        assert hook.problems == []
    return open_run(folder), notes


def value(run: Run, name: str, step: int, **more: Any) -> Any:
    return run.tensor(name).value(step, **more)


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> tuple[Run, Notes]:
    """A CNN after two epochs of four batches, the last of which is smaller."""
    x, y = images()
    model = seeded(lambda: classifier(plain(), optimizer=keras.optimizers.SGD(0.1)))
    folder = tmp_path_factory.mktemp("keras") / "run"
    return fitted(folder, model, (x, y), epochs=2, shuffle=False, validation_data=(x[:12], y[:12]))


@pytest.mark.thorough
def test_the_means_of_losses_equal_those_of_fit(trained: tuple[Run, Notes]) -> None:
    run, notes = trained
    losses = run.scalars("losses", mode="train")["losses/loss"].values
    assert len(losses) == 8
    sizes = np.array([8, 8, 8, 4] * 2)
    for step, logs in enumerate(notes.logs):
        epoch = slice(step // 4 * 4, step + 1)
        mean = np.average(losses[epoch], weights=sizes[epoch])
        assert logs["loss"] == pytest.approx(mean, rel=1e-6)


@pytest.mark.thorough
def test_metrics_equal_those_of_fit(trained: tuple[Run, Notes]) -> None:
    run, notes = trained
    found = run.scalars("metrics", mode="train")["metrics/accuracy"].values
    assert found.tolist() == pytest.approx([logs["accuracy"] for logs in notes.logs])


@pytest.mark.thorough
def test_weights_are_those_before_the_update(trained: tuple[Run, Notes]) -> None:
    run, notes = trained
    for step, weights in enumerate(notes.weights):
        assert np.array_equal(value(run, "weights/conv2d.kernel", step), weights[0])
        assert np.array_equal(value(run, "biases/conv2d.bias", step), weights[1])
        assert np.array_equal(value(run, "weights/batch_normalization.gamma", step), weights[2])


def test_gradients_and_outputs_equal_a_separate_computation(
    trained: tuple[Run, Notes],
) -> None:
    run, notes = trained
    x, y = images()
    copy = plain()
    loss_fn = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    for step in (0, 5, 7):
        copy.set_weights(notes.weights[step])
        batch = slice(step % 4 * 8, step % 4 * 8 + 8)
        outputs = tf.constant(x[batch])
        with tf.GradientTape() as tape:
            for path, layer in zip(
                [
                    "conv2d",
                    "batch_normalization",
                    "conv2d_1",
                    "re_lu",
                    "flatten",
                    "dropout",
                    "dense",
                ],
                copy.layers,
                strict=True,
            ):
                assert np.allclose(value(run, f"inputs/{path}", step), outputs, atol=1e-6)
                batchwise = isinstance(layer, keras.layers.BatchNormalization)
                outputs = layer(outputs, training=True) if batchwise else layer(outputs)
                assert np.allclose(value(run, f"outputs/{path}", step), outputs, atol=1e-5)
            loss = loss_fn(y[batch], outputs)
        gradients = tape.gradient(loss, copy.trainable_variables)
        for gradient, variable in zip(gradients, copy.trainable_variables, strict=True):
            path = _paths(copy)[id(variable)]
            assert np.allclose(value(run, f"gradients/{path}", step), gradient, atol=1e-5), path
        assert np.array_equal(value(run, "labels/batch", step), y[batch])
        assert np.array_equal(
            value(run, "predictions/batch", step), value(run, "outputs/dense", step)
        )


def _paths(model: Any) -> dict[int, str]:
    """Return how the variables of a Sequential are called, by hand."""
    return {
        id(variable): f"{name}.{variable.name}"
        for name, layer in zip(_LAYERS, model.layers, strict=True)
        for variable in layer.trainable_variables
    }


def test_an_evaluation_is_one_record_at_the_current_step(trained: tuple[Run, Notes]) -> None:
    run, _ = trained
    assert run.steps("eval").tolist() == [4, 8]
    assert value(run, "outputs/dense", 4, mode="eval").shape == (8, 4)
    assert value(run, "buffers/batch_normalization.moving_mean", 8, mode="eval").shape == (4,)
    assert run.scalars("losses", mode="eval")["losses/loss"].steps.tolist() == [4, 8]


@pytest.mark.thorough
def test_learning_rate_and_slots_are_captured(tmp_path: Path) -> None:
    rate = keras.optimizers.schedules.ExponentialDecay(0.5, 1, 0.5)
    optimizer = keras.optimizers.SGD(rate, momentum=0.9)
    run, _ = fitted(tmp_path, classifier(plain(), optimizer=optimizer), images())
    assert run.scalars("optimizer_state")["optimizer_state/lr"].values.tolist() == [
        0.5,
        0.25,
        0.125,
        0.0625,
    ]
    before = [value(run, "optimizer_state/dense.bias.momentum", step) for step in range(4)]
    gradient = value(run, "gradients/dense.bias", 1)
    assert not before[0].any()
    assert np.allclose(before[2], 0.9 * before[1] - 0.25 * gradient, atol=1e-6)


@pytest.mark.thorough
def test_accumulated_batches_are_one_step_with_one_clipped_gradient(tmp_path: Path) -> None:
    optimizer = keras.optimizers.SGD(1.0, gradient_accumulation_steps=2, global_clipnorm=0.01)
    model = classifier(plain(), optimizer=optimizer)
    run, notes = fitted(tmp_path, model, images(32), epochs=2)
    assert run.steps("train").tolist() == [0, 1, 2, 3]
    for step in range(4):
        moved = notes.weights[2 * step][8] - (
            notes.weights[2 * step + 2][8] if step < 3 else model.get_weights()[8]
        )
        assert np.allclose(value(run, "gradients/dense.kernel", step), moved, atol=1e-7)
    norms = [
        np.sum(value(run, name, 1).astype("float64") ** 2)
        for name in run.tensor_names(collection="gradients")
    ]
    assert np.sqrt(sum(norms)) == pytest.approx(0.01, rel=1e-4)


@pytest.mark.thorough
def test_gradients_of_half_precision_are_unscaled_and_skipped_updates_no_steps(
    tmp_path: Path,
) -> None:
    inner = keras.optimizers.SGD(0.1)
    optimizer = keras.optimizers.LossScaleOptimizer(inner, initial_scale=2.0**26)
    keras.config.set_dtype_policy("mixed_float16")
    try:
        model = classifier(plain(), optimizer=optimizer)
    finally:
        keras.config.set_dtype_policy("float32")
    run, _ = fitted(tmp_path, model, images(64), epochs=2)
    steps = int(inner.iterations.value)
    assert 0 < steps < 16
    assert run.steps("train").tolist() == list(range(steps))
    # The weights of step 1 are those that the update with the gradient of step 0 made.
    for step in range(steps - 1):
        name = "dense.bias"
        after = value(run, f"biases/{name}", step) - 0.1 * value(run, f"gradients/{name}", step)
        assert np.allclose(value(run, f"biases/{name}", step + 1), after, atol=1e-6)
    assert value(run, "outputs/conv2d", 0).dtype == np.float16


@pytest.mark.thorough
def test_attention_equals_the_formula(tmp_path: Path) -> None:
    model = classifier(Transformer(), optimizer=keras.optimizers.SGD(0.1))
    run, _ = fitted(tmp_path, model, sentences(), batch_size=16)
    names = run.tensor_names(collection="attention")
    assert sorted(names) == ["attention/dropped", "attention/fused", "attention/grouped"]
    assert value(run, "attention/fused", 0).shape == (16, 2, 6, 6)
    assert value(run, "attention/grouped", 0).shape == (16, 4, 6, 6)
    query = value(run, "outputs/fused.query_dense", 0).astype("float64")
    key = value(run, "outputs/fused.key_dense", 0).astype("float64")
    scores = np.einsum("bqhd,bkhd->bhqk", query, key) / np.sqrt(4)
    scores[..., np.triu(np.ones((6, 6), bool), 1)] = -np.inf
    exact = np.exp(scores - scores.max(-1, keepdims=True))
    exact /= exact.sum(-1, keepdims=True)
    assert np.allclose(value(run, "attention/fused", 0), exact, atol=1e-6)
    # Sparse gradients are converted to dense ones.
    assert value(run, "gradients/embedding.embeddings", 0).shape == (20, 8)


@pytest.mark.thorough
def test_repeated_calls_of_a_layer_are_numbered(tmp_path: Path) -> None:
    run, _ = fitted(tmp_path, classifier(Residual()), images(), batch_size=28)
    names = run.tensor_names(collection="outputs")
    assert {"outputs/mix", "outputs/mix#1", "outputs/mix#2", "outputs/encoder.dense"} <= set(names)
    assert {"outputs/blocks.0", "outputs/head", "outputs/Residual"} <= set(names)
    assert "outputs/mix#3" not in names
    kernel, bias = value(run, "weights/mix.kernel", 0), value(run, "biases/mix.bias", 0)
    for call in ("", "#1", "#2"):
        inputs = value(run, f"inputs/mix{call}", 0)
        assert np.allclose(value(run, f"outputs/mix{call}", 0), inputs @ kernel + bias, atol=1e-5)


@pytest.mark.thorough
def test_several_inputs_outputs_and_losses_keep_their_names(tmp_path: Path) -> None:
    left, right = keras.Input((3,), name="left"), keras.Input((2,), name="right")
    both = keras.layers.Concatenate()([left, right])
    outputs = {
        "a": keras.layers.Dense(1, name="a")(both),
        "b": keras.layers.Dense(2, name="b")(both),
    }
    model = keras.Model({"left": left, "right": right}, outputs)
    model.compile("sgd", {"a": "mse", "b": "mse"}, loss_weights={"a": 2.0, "b": 1.0})
    rng = np.random.default_rng(0)
    x = {"left": rng.normal(size=(8, 3)), "right": rng.normal(size=(8, 2))}
    y = {"a": rng.normal(size=(8, 1)), "b": rng.normal(size=(8, 2))}
    run, _ = fitted(tmp_path, model, (x, y))
    names = run.tensor_names()
    assert {"inputs/Functional[left]", "inputs/concatenate[0]", "inputs/concatenate[1]"} <= set(
        names
    )
    assert {"labels/a", "labels/b", "predictions/a", "predictions/b"} <= set(names)
    found = {
        key: run.scalars("losses")[f"losses/{key}"].values[0]
        for key in ("loss", "a_loss", "b_loss")
    }
    by_hand = {
        key: float(
            np.mean((value(run, f"predictions/{key}", 0) - value(run, f"labels/{key}", 0)) ** 2)
        )
        for key in "ab"
    }
    # Keras tracks the single losses before their weights.
    assert found["a_loss"] == pytest.approx(by_hand["a"], rel=1e-5)
    assert found["loss"] == pytest.approx(2 * by_hand["a"] + by_hand["b"], rel=1e-5)


@pytest.mark.thorough
def test_collections_by_layer_type_and_activation(tmp_path: Path) -> None:
    model = classifier(plain())
    collections: dict[str, SaveConfig | Collection] = {
        "activations": SaveConfig(every=1),
        "kernels": Collection(types=("Conv2D",), kinds=("weights",), save=SaveConfig(every=1)),
        "last": Collection(modules=(model.layers[-1],), save=SaveConfig(reductions=("l2",))),
    }
    with Hook(tmp_path, collections=collections) as hook:
        hook.watch(model)
        model.fit(*images(), batch_size=28, verbose=0)
        assert hook.problems == []
    run = open_run(tmp_path)
    whole = [name for name in run.tensor_names() if "dense" not in name]
    assert sorted(whole) == [
        "outputs/conv2d",
        "outputs/re_lu",
        "weights/conv2d.kernel",
        "weights/conv2d_1.kernel",
    ]
    assert sorted(run.reductions("l2")) == [
        "biases/dense.bias",
        "gradients/dense.bias",
        "gradients/dense.kernel",
        "inputs/dense",
        "optimizer_state/dense.bias.momentum",
        "optimizer_state/dense.bias.velocity",
        "optimizer_state/dense.kernel.momentum",
        "optimizer_state/dense.kernel.velocity",
        "outputs/dense",
        "updates/dense.bias",
        "updates/dense.kernel",
        "weights/dense.kernel",
    ]
