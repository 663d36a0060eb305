"""Limits of capture from Keras: unaffected models, rejected arguments, reported limits."""

from __future__ import annotations

import os
import signal
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.capture.keras_.tensorflow_trainings import ZOO_TENSORFLOW, batches
from tests.capture.keras_.zoo import ZOO, Residual, classifier, cnn, everything, final_bits, images

import keras  # isort: skip
import tensorflow as tf  # isort: skip
from vinedresser.capture import Hook, SaveConfig, TrainingStopped, open_run
from vinedresser.errors import ConfigError

# Raised by Keras itself when it converts a variable to an array.
pytestmark = pytest.mark.filterwarnings("ignore:__array__ implementation:DeprecationWarning")


def _nothing(**more: SaveConfig) -> dict[str, SaveConfig]:
    return {name: SaveConfig(every=0) for name in ("losses", "metrics", "saved")} | more


@pytest.mark.thorough
def test_steps_with_nothing_due_run_the_function_of_keras(tmp_path: Path) -> None:
    with Hook(tmp_path, collections=_nothing(gradients=SaveConfig(every=5))) as hook:
        model = classifier(cnn())
        hook.watch(model)
        model.fit(*images(80), batch_size=8, epochs=2, verbose=0)
        plain = model.train_function.args[0]
        # The function of an iterator inside the function of Keras.
        own = next(
            c.cell_contents
            for c in plain.__closure__
            if hasattr(c.cell_contents, "name") and "multi" in c.cell_contents.name
        )
        assert own.experimental_get_tracing_count() == 1
    assert open_run(tmp_path).steps("train").tolist() == [0, 5, 10, 15]


@pytest.mark.thorough
def test_a_step_is_traced_once_for_each_set_of_collections(tmp_path: Path) -> None:
    traced: list[int] = []

    class Noting(Residual):
        def call(self, x: Any, training: bool = False) -> Any:
            traced.append(1)
            return super().call(x, training=training)

    collections = _nothing(gradients=SaveConfig(every=2), outputs=SaveConfig(every=4))
    with Hook(tmp_path, collections=collections) as hook:
        model = classifier(Noting())
        hook.watch(model)
        model.fit(*images(160), batch_size=8, epochs=2, verbose=0)
    # Everything, gradients alone, and Keras's own function, whose first trace builds the model.
    assert len(traced) <= 5
    assert open_run(tmp_path).steps("train").tolist() == list(range(0, 40, 2))


@pytest.mark.thorough
def test_a_stop_ends_fit_between_two_steps_with_a_checkpoint(tmp_path: Path) -> None:
    class Asking(keras.callbacks.Callback):  # type: ignore[misc]
        def on_train_batch_begin(self, batch: int, logs: Any = None) -> None:
            if batch == 2:
                os.kill(os.getpid(), signal.SIGTERM)

    model = classifier(cnn())
    hook = Hook(tmp_path / "run", collections=everything()).watch(model)
    with pytest.raises(TrainingStopped):
        model.fit(*images(), batch_size=4, verbose=0, callbacks=[Asking()])
    assert open_run(tmp_path / "run").steps("train").tolist() == [0, 1, 2]
    other = cnn()
    other.load_weights(tmp_path / "run" / "checkpoints" / "step-3.weights.h5")
    for mine, saved in zip(model.get_weights(), other.get_weights(), strict=True):
        assert np.array_equal(mine, saved)
    assert hook.problems == []


@pytest.mark.thorough
def test_a_step_with_stateful_random_operations_is_not_replaced(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    class Noisy(keras.layers.Layer):  # type: ignore[misc]
        def call(self, x: Any) -> Any:
            return x + tf.random.normal(tf.shape(x))

    def training(attach: Any) -> Any:
        model = keras.Sequential([keras.Input((8, 8, 1)), Noisy(), keras.layers.Flatten()])
        model.add(keras.layers.Dense(4))
        classifier(model)
        attach(model)
        model.fit(*images(), batch_size=4, verbose=0)
        return model

    plain = final_bits(training)
    hook = Hook(tmp_path, collections=everything())
    assert final_bits(training, hook.watch) == plain
    hook.close()
    assert "tf.random.Generator" in capfd.readouterr().err
    run = open_run(tmp_path)
    assert run.steps("train").tolist() == list(range(7))
    assert run.tensor_names(collection="gradients") == []


@pytest.mark.thorough
def test_tensors_inside_recurrent_loops_are_reported(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    model = keras.Sequential([keras.Input((5, 2)), keras.layers.RNN(keras.layers.LSTMCell(3))])
    model.compile("sgd", "mse")
    with Hook(tmp_path, collections=everything()) as hook:
        hook.watch(model)
        model.fit(np.ones((4, 5, 2)), np.ones((4, 3)), verbose=0)
    assert "inside a loop" in capfd.readouterr().err
    run = open_run(tmp_path)
    assert run.tensor("outputs/rnn").value(0).shape == (4, 3)
    assert run.tensor("gradients/rnn.cell.kernel").value(0).shape == (2, 12)


@pytest.mark.thorough
def test_fused_steps_run_one_by_one_if_something_is_due(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    model = classifier(cnn(), steps_per_execution=3)
    with Hook(tmp_path, collections=_nothing(gradients=SaveConfig(every=5))) as hook:
        hook.watch(model)
        # Seven batches: three, three, one.
        model.fit(batches(), epochs=2, verbose=0, shuffle=False)
        assert hook._session.recorder.steps == 14
    assert open_run(tmp_path).steps("train").tolist() == [0, 5, 10]
    assert capfd.readouterr().err.count("steps_per_execution is 3") == 1


def test_names_do_not_depend_on_earlier_models(tmp_path: Path) -> None:
    cnn()
    model = classifier(cnn())
    assert model.layers[0].name != "conv2d"
    hook = Hook(tmp_path).watch(model)
    names = hook._control.names()
    assert {"weights/conv2d.kernel", "weights/conv2d_1.kernel", "outputs/dense"} <= set(names)
    hook.close()


@pytest.mark.thorough
def test_a_closed_hook_leaves_nothing_behind(tmp_path: Path) -> None:
    before = {name: vars(keras.layers.Layer)[name] for name in ("__call__",)}
    model = classifier(cnn())
    known = set(vars(model))
    hook = Hook(tmp_path, collections=everything()).watch(model)
    model.fit(*images(), verbose=0)
    assert vars(keras.layers.Layer)["__call__"] is not before["__call__"]
    hook.close()
    assert vars(keras.layers.Layer)["__call__"] is before["__call__"]
    assert "make_train_function" not in vars(model)
    assert {name for name in vars(model) if "function" in name} <= known | {"train_function"}
    model.fit(*images(), verbose=0)


@pytest.mark.thorough
def test_a_watched_model_can_be_saved_and_cloned(tmp_path: Path) -> None:
    model = classifier(cnn())
    hook = Hook(tmp_path / "run", collections=everything()).watch(model)
    model.fit(*images(), verbose=0)
    model.save(tmp_path / "model.keras")
    loaded = keras.models.load_model(tmp_path / "model.keras")
    x, _ = images()
    assert np.allclose(loaded.predict(x, verbose=0), model.predict(x, verbose=0), atol=1e-6)
    keras.models.clone_model(model).compile("sgd", "mse")
    hook.close()


def test_invalid_losses_and_optimizers_are_rejected(tmp_path: Path) -> None:
    hook = Hook(tmp_path)
    with pytest.raises(ConfigError, match=r"hook\.loss"):
        hook.watch(cnn(), loss=lambda y, p: 0.0)
    with pytest.raises(ConfigError, match=r"keras\.optimizers\.Optimizer"):
        hook.watch(cnn(), optimizer="adam")
    hook.close()


@pytest.mark.slow
def test_only_gradients_of_bfloat16_may_change_the_last_bit(
    tmp_path: Path,
) -> None:
    # With captured gradients, oneDNN kernels of bfloat16 are fused differently.
    kinds = {name: save for name, save in everything(2).items() if name != "gradients"}
    plain = final_bits(ZOO["brain"])
    with Hook(tmp_path / "without", collections=kinds) as hook:
        assert final_bits(ZOO["brain"], hook.watch) == plain
    with Hook(tmp_path / "with", collections=everything(2)) as hook:
        hooked = final_bits(ZOO["brain"], hook.watch)
        assert ["bfloat16" in problem for problem in hook.problems] == [True]
    _close(plain, hooked)


@pytest.mark.slow
def test_rounding_differences_with_xla_are_reported(tmp_path: Path) -> None:
    plain = final_bits(ZOO_TENSORFLOW["jit"])
    with Hook(tmp_path, collections=everything(2)) as hook:
        hooked = final_bits(ZOO_TENSORFLOW["jit"], hook.watch)
        assert ["XLA" in problem for problem in hook.problems] == [True]
    _close(plain, hooked)
    assert open_run(tmp_path).tensor_names(collection="gradients")


def _close(plain: list[bytes], hooked: list[bytes]) -> None:
    """Check that the CNN's variables are the same but for rounding."""
    for one, other in zip(plain[:11], hooked[:11], strict=True):
        weights, close = (np.frombuffer(bits, np.float32) for bits in (one, other))
        assert np.allclose(weights, close, rtol=1e-3, atol=1e-5)
