"""Pre-flight checks of scripts that train with Keras."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.cli.command_line import vinedresser
from vinedresser.preflight.launching import Preflight, check_script
from vinedresser.preflight.verdict import FINE, SUSPICIOUS, UNCHECKED

SCRIPT = """
import os

os.environ["KERAS_BACKEND"] = "{backend}"
import keras
import numpy as np

keras.utils.set_random_seed(0)
labels = np.arange(1792) % 10
images = np.random.default_rng(0).random((10, 64))[labels].astype("float32")
model = keras.Sequential(
    [keras.Input((64,)), keras.layers.Dense(32, "relu"), keras.layers.Dense(10, "softmax")]
)
model.compile({optimizer}, "sparse_categorical_crossentropy")
{train}
print("the end")
"""
TAPE = """
import tensorflow as tf

loss, optimizer = keras.losses.SparseCategoricalCrossentropy(), keras.optimizers.Adam()
for step in range(1000):
    with tf.GradientTape() as tape:
        value = loss(labels[:64], model(images[:64], training=True))
    gradients = tape.gradient(value, model.trainable_variables)
    optimizer.apply(gradients, model.trainable_variables)
"""


def checked(
    folder: Path, monkeypatch: pytest.MonkeyPatch, *, steps: int = 20, **changes: str
) -> Preflight:
    given = {
        "backend": "tensorflow",
        "optimizer": "keras.optimizers.Adam(1e-2)",
        "train": "model.fit(images, labels, epochs=1000, verbose=0)",
    }
    text = SCRIPT.format(**given | changes)
    (folder / "train.py").write_text(text, encoding="utf-8")
    monkeypatch.chdir(folder)
    return check_script(["train.py"], steps=steps, seconds=30, timeout=100)


def states(found: Preflight) -> dict[str, str]:
    return {verdict.check: verdict.state for verdict in found.verdicts}


@pytest.mark.thorough
@pytest.mark.parametrize("backend", ["tensorflow", pytest.param("torch", marks=pytest.mark.slow)])
def test_a_healthy_training_is_fine_and_ended(
    backend: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = checked(tmp_path, monkeypatch, backend=backend)
    assert states(found) == dict.fromkeys(("rules", "updates", "overfit", "cost"), FINE)
    # None: its end took more than ten seconds.
    assert (found.steps, found.code) in ((20, 0), (20, None))
    assert "the end" not in found.output
    assert os.listdir(tmp_path) == ["train.py"]


@pytest.mark.slow
def test_a_rate_that_learns_nothing_is_suspicious(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = checked(tmp_path, monkeypatch, optimizer="keras.optimizers.SGD(1e-9)")
    assert states(found)["overfit"] == states(found)["learning_rate_too_low"] == SUSPICIOUS


@pytest.mark.slow
def test_a_loop_of_its_own_is_judged_by_rules_and_ended(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = checked(tmp_path, monkeypatch, train=TAPE)
    assert states(found)["overfit"] == UNCHECKED
    assert states(found)["rules"] == FINE
    assert found.steps == 20
    assert "the end" not in found.output


@pytest.mark.slow
def test_a_training_that_ends_before_the_limit_is_checked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    train = (
        "import tensorflow as tf\n"
        "rows = tf.data.Dataset.from_tensor_slices((images, labels)).batch(64)\n"
        "model.fit(rows.take(6), verbose=0)"
    )
    found = checked(tmp_path, monkeypatch, train=train)
    assert (found.steps, found.code) == (6, 0)
    assert "the end" in found.output
    assert states(found)["overfit"] == FINE


@pytest.mark.slow
def test_many_short_trainings_are_ended_and_data_that_are_used_up_are_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    train = (
        "for number in range(1000):\n"
        "    model = keras.models.clone_model(model)\n"
        "    model.compile('adam', 'sparse_categorical_crossentropy')\n"
        "    rows = ((images[:32], labels[:32]) for _ in range(4))\n"
        "    model.fit(rows, verbose=0)"
    )
    found = checked(tmp_path, monkeypatch, train=train, steps=10)
    assert found.steps == 10
    assert "the end" not in found.output
    (overfit,) = (one for one in found.verdicts if one.check == "overfit")
    assert (overfit.state, "StopIteration" in overfit.evidence) == (UNCHECKED, True)


@pytest.mark.slow
def test_a_script_that_fails_is_no_success(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    checked(tmp_path, monkeypatch, train="raise ValueError('no data')")
    done = vinedresser("check", "train.py")
    assert done.returncode == 1
    assert "no data" in done.stdout + done.stderr
