"""The guard of Keras models sees gradients that are not finite before the update."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import keras
import numpy as np
import pytest

from tests.capture.keras_.guard.trainings import (
    BAD_ROW,
    BAD_STEP,
    BATCH,
    Distance,
    data,
    distances,
    network,
    train,
)
from vinedresser.capture import Hook, open_run
from vinedresser.capture.recording.stopping import TrainingStopped
from vinedresser.frameworks.keras_.codec import KerasCodec
from vinedresser.objects import LocalStorage
from vinedresser.snapshots.reading import Snapshot, list_snapshots, open_snapshot
from vinedresser.snapshots.settings import SnapshotSettings

import tensorflow as tf  # isort: skip

pytestmark = pytest.mark.filterwarnings("ignore:__array__ implementation:DeprecationWarning")


def taken(run: Path) -> list[tuple[int, str]]:
    faults: list[str] = []
    found: list[tuple[int, str]] = [
        (snapshot.step, snapshot.reason) for snapshot in list_snapshots(LocalStorage(run), faults)
    ]
    assert faults == []
    return found


def model_of(snapshot: Snapshot) -> dict[str, Any]:
    models = snapshot.value(snapshot.record.contents["models"], KerasCodec())
    found: dict[str, Any] = models[""]
    return found


@pytest.mark.thorough
def test_the_snapshot_holds_the_state_before_the_bad_step(tmp_path: Path) -> None:
    before = distances()
    images, weights = data()
    samples = np.linspace(0.5, 1, len(images), dtype=np.float32)
    until = BAD_STEP * BATCH
    before.fit(
        images[:until],
        weights[:until],
        batch_size=BATCH,
        shuffle=False,
        verbose=0,
        sample_weight=samples[:until],
    )
    train(tmp_path / "run", distances(), sampled=True)
    assert taken(tmp_path / "run") == [(BAD_STEP, "nonfinite")]
    snapshot = open_snapshot(tmp_path / "run" / "snapshots" / f"step-{BAD_STEP}")
    found = model_of(snapshot)
    assert found["parameters"].keys() >= {"conv2d.kernel", "dense.bias"}
    kept = {**found["parameters"], **found["buffers"]}
    wanted = {variable.path: variable.numpy() for variable in before.variables}
    assert len(kept) == len(wanted)
    # Statistics of batch normalization and the state of dropout are those before the forward.
    assert sorted(one.tobytes() for one in kept.values()) == sorted(
        one.tobytes() for one in wanted.values()
    )
    bad = slice(until, until + BATCH)
    for one, other in zip(found["data"], (images, weights, samples), strict=True):
        np.testing.assert_array_equal(one, other[bad])
    assert [one.tobytes() for one in found["optimizers"][0]["variables"]] == [
        variable.numpy().tobytes() for variable in before.optimizer.variables
    ]
    assert snapshot.record.left_out == {}
    assert snapshot.record.inexact == []


def _compiled(**options: Any) -> Any:
    return lambda: distances(**options)


@pytest.mark.thorough
@pytest.mark.parametrize(
    "make",
    [
        distances,
        pytest.param(_compiled(jit_compile=True), marks=pytest.mark.slow, id="jit"),
        pytest.param(_compiled(run_eagerly=True), marks=pytest.mark.thorough, id="eager"),
        pytest.param(_compiled(steps_per_execution=3), marks=pytest.mark.thorough, id="fused"),
    ],
)
def test_the_training_is_the_same_with_and_without(make: Any, tmp_path: Path) -> None:
    plain, _ = train(None, make())
    settings = SnapshotSettings(every=2, keep=9)
    guarded, problems = train(tmp_path / "run", make(), snapshots=settings)
    assert guarded == plain
    assert not [problem for problem in problems if "failed" in problem]
    steps = [(step, "nonfinite" if step == BAD_STEP else "periodic") for step in (0, 2, 4, 6)]
    assert taken(tmp_path / "run") == steps


@pytest.mark.thorough
@pytest.mark.parametrize(
    "options",
    [
        {},
        # As Keras compiles by itself where it finds a GPU.
        {"jit_compile": True},
        {"run_eagerly": True},
    ],
)
def test_a_stop_comes_before_the_update(options: dict[str, Any], tmp_path: Path) -> None:
    model = distances(**options)
    with pytest.raises(TrainingStopped):
        train(tmp_path / "run", model, snapshots=SnapshotSettings(stop=True))
    assert all(np.isfinite(weight).all() for weight in model.get_weights())
    assert int(model.optimizer.iterations) == BAD_STEP
    run = open_run(tmp_path / "run")
    assert run.status.state == "stopped"
    (finding,) = run.findings()
    assert (finding.rule, finding.severity, finding.step) == (
        "nonfinite_gradient",
        "stop",
        BAD_STEP,
    )
    assert "the loss is finite but its derivative is not" in finding.cause


class Own(keras.Model):  # type: ignore[misc]
    """A model with a train step of its own."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = network()
        self.distance = Distance()

    def call(self, images: Any, training: Any = None) -> Any:
        return self.inner(images, training=training)

    def train_step(self, given: Any) -> Any:
        images, weights = given
        with tf.GradientTape() as tape:
            loss = self.distance(weights, self(images, training=True))
        gradients = tape.gradient(loss, self.trainable_variables)
        self.optimizer.apply_gradients(zip(gradients, self.trainable_variables, strict=True))
        return {"loss": loss}


@pytest.mark.thorough
def test_a_custom_train_step(tmp_path: Path) -> None:
    bits = []
    for run in (None, tmp_path / "run"):
        model = Own()
        model.compile("adam")
        bits.append(train(run, model)[0])
    assert bits[0] == bits[1]
    assert taken(tmp_path / "run") == [(BAD_STEP, "nonfinite")]


@pytest.mark.thorough
@pytest.mark.parametrize("compiled", [False, True])
def test_a_custom_loop(compiled: bool, tmp_path: Path) -> None:
    bits = []
    images, weights = data()
    for run in (None, tmp_path / "run"):
        model, loss_fn, optimizer = network(), Distance(), keras.optimizers.Adam()

        def step(some: Any, wanted: Any, model: Any = model, loss_fn: Any = loss_fn) -> None:
            with tf.GradientTape() as tape:
                loss = loss_fn(wanted, model(some, training=True))
            found = tape.gradient(loss, model.trainable_variables)
            optimizer.apply_gradients(zip(found, model.trainable_variables, strict=True))  # noqa: B023

        function = tf.function(step) if compiled else step
        hook = None if run is None else Hook(run, guard="nonfinite").watch(model, loss=loss_fn)
        for at in range(0, len(images), BATCH):
            function(tf.constant(images[at : at + BATCH]), tf.constant(weights[at : at + BATCH]))
        if hook is not None:
            hook.close()
            assert hook.problems == []
        bits.append([variable.numpy().tobytes() for variable in model.variables])
    assert bits[0] == bits[1]
    assert taken(tmp_path / "run") == [(BAD_STEP, "nonfinite")]
    snapshot = open_snapshot(tmp_path / "run" / "snapshots" / f"step-{BAD_STEP}")
    (call,) = model_of(snapshot)["calls"]
    assert not call["losses"][0]["arguments"][0][BAD_ROW].any()
    assert snapshot.record.left_out == {}


@pytest.mark.thorough
def test_steps_that_a_scaled_loss_skips_are_no_alarm(tmp_path: Path) -> None:
    model = network()
    scaled = keras.optimizers.LossScaleOptimizer(keras.optimizers.SGD(), initial_scale=2.0**126)
    model.compile(scaled, "mse")
    images, weights = data()
    hook = Hook(tmp_path / "run", guard="nonfinite").watch(model)
    model.fit(images, weights * 1e4, batch_size=BATCH, verbose=0)
    hook.close()
    assert taken(tmp_path / "run") == []


@pytest.mark.thorough
def test_gradients_that_are_only_large_are_no_alarm(tmp_path: Path) -> None:
    keras.utils.set_random_seed(0)
    model = keras.Sequential([keras.layers.Input((3,)), keras.layers.Dense(1)])
    model.compile(keras.optimizers.SGD(0.0), "mse")
    hook = Hook(tmp_path / "run", guard="nonfinite").watch(model)
    model.fit(np.full((4, 3), 1e12, np.float32), np.zeros((4, 1), np.float32), verbose=0)
    hook.close()
    assert hook.problems == []
    assert taken(tmp_path / "run") == []
