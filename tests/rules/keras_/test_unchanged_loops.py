"""Loops of gradient tapes in scripts that know nothing of vinedresser, judged while they run."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.capture.attach.runs import alone, attached, script
from vinedresser.store.reading.reader import Run, open_run

pytestmark = pytest.mark.slow

LINES, COMPILED = "", "@tf.function"
KERAS = {"KERAS_BACKEND": "tensorflow", "TF_CPP_MIN_LOG_LEVEL": "3", "OMP_NUM_THREADS": "1"}
CLASSIFIER = """
    import hashlib
    import keras, numpy as np, tensorflow as tf
    from sklearn.datasets import load_digits

    keras.utils.set_random_seed(0)
    random = np.random.default_rng(0)
    x, y = load_digits(return_X_y=True)
    order = random.permutation(len(x))
    x, y = (x[order] / 16).astype("float32"), y[order]
    model = keras.Sequential([keras.layers.Dense(64, activation="relu"),
                              keras.layers.Dropout(0.1), keras.layers.Dense(10)])
    criterion = keras.losses.SparseCategoricalCrossentropy(from_logits={logits})
    optimizer = keras.optimizers.SGD({rate})

    {compiled}
    def train_step(rows, labels):
        with tf.GradientTape() as tape:
            loss = {loss}
        gradients = tape.gradient(loss, model.trainable_weights)
        optimizer.apply_gradients(zip(gradients, model.trainable_weights))
        return loss

    for step in range({steps}):
        if step % 50 == 0:
            look = criterion(y[1400:], model(x[1400:], training=False))
        chosen = random.integers(0, 1400, 64)
        value = train_step(tf.constant(x[chosen]), tf.constant(y[chosen]))
        print(float(value))
    model.save("trained.keras")
    saved = keras.models.load_model("trained.keras").get_weights()
    digest = hashlib.sha256(b"".join(one.tobytes() for one in saved))
    accuracy = np.mean(np.argmax(model(x[1400:], training=False), 1) == y[1400:])
    print(float(look), float(accuracy), digest.hexdigest())
"""
USUAL = "criterion(labels, model(rows, training=True))"
# Moves two-dimensional noise onto a ring.
ADVERSARIES = """
    import keras, numpy as np, tensorflow as tf

    keras.utils.set_random_seed(0)
    random = np.random.default_rng(0)

    def network(wide, out):
        return keras.Sequential([keras.Input((wide,)), keras.layers.Dense(32, activation="relu"),
                                 keras.layers.Dense(32, activation="relu"),
                                 keras.layers.Dense(out)])

    maker, critic = network(4, 2), network(2, 1)
    binary = keras.losses.BinaryCrossentropy(from_logits=True)
    made, criticised = keras.optimizers.Adam(1e-3, 0.5), keras.optimizers.Adam(1e-3, 0.5)

    {compiled}
    def train_step(noise, real):
        with tf.GradientTape() as first, tf.GradientTape() as second:
            fake = maker(noise, training=True)
            yes, no = critic(real, training=True), critic(fake, training=True)
            wanted = binary(tf.ones_like(no), no)
            told = binary(tf.ones_like(yes), yes) + binary(tf.zeros_like(no), no)
        others = second.gradient(told, critic.trainable_weights)
        gradients = first.gradient(wanted, maker.trainable_weights)
        criticised.apply_gradients(zip(others, critic.trainable_weights))
        made.apply_gradients(zip(gradients, maker.trainable_weights))

    for step in range(300):
        angle = random.uniform(0, 2 * np.pi, 64)
        ring = np.stack([np.cos(angle), np.sin(angle)], 1).astype("float32")
        train_step(random.normal(size=(64, 4)).astype("float32"), ring)
"""


def classifier(
    *, compiled: str, loss: str = USUAL, rate: float = 0.1, logits: bool = True, steps: int = 300
) -> str:
    """Return a script that trains a classifier of digits."""
    given = {"compiled": compiled, "loss": loss, "rate": rate, "logits": logits, "steps": steps}
    return CLASSIFIER.format(**given)


def judged(directory: Path, text: str) -> tuple[subprocess.CompletedProcess[str], Run]:
    """Run a script under the default rules."""
    script(directory, text)
    options = ("--preset", "default")
    done = attached("train.py", cwd=directory, options=options, **KERAS)
    return done, open_run(directory / "runs" / "run")


def serious(run: Run) -> list[str]:
    """Return the rules that warned or stopped."""
    return [finding.rule for finding in run.findings() if finding.severity != "info"]


@pytest.mark.parametrize("compiled", [LINES, COMPILED])
def test_a_sound_loop_runs_as_without_and_in_silence(compiled: str, tmp_path: Path) -> None:
    done, run = judged(tmp_path, classifier(compiled=compiled))
    assert done.returncode == 0, done.stderr
    assert serious(run) == []
    without = alone(sys.executable, "train.py", cwd=tmp_path, **KERAS)
    assert done.stdout == without.stdout
    *losses, last = done.stdout.splitlines()
    assert float(last.split()[1]) > 0.9, "else silence is wrong"
    found = run.scalars("losses", mode="train")["losses/loss"]
    assert found.values.tolist() == [float(losses[step]) for step in found.steps]
    # The function that is running when the model is found cannot be replaced any more.
    assert found.steps.tolist() == list(range(1 if compiled else 0, 300))
    assert run.info.losses["loss"]["type"] == "SparseCategoricalCrossentropy"


@pytest.mark.parametrize(
    ("fault", "compiled", "change"),
    [
        ("learning_rate_too_high", LINES, {"rate": 300.0}),
        ("learning_rate_too_low", COMPILED, {"rate": 1e-6}),
        ("loss_output_mismatch", COMPILED, {"logits": False}),
        ("loss_output_mismatch", LINES, {"loss": f"-{USUAL}"}),
        ("loss_output_mismatch", COMPILED, {"loss": f"-{USUAL}"}),
    ],
)
def test_faulty_loops_are_found(
    fault: str, compiled: str, change: dict[str, Any], tmp_path: Path
) -> None:
    _, run = judged(tmp_path, classifier(compiled=compiled, **change))
    assert fault in [finding.fault for finding in run.findings() if finding.severity != "info"]


@pytest.mark.parametrize("compiled", [LINES, COMPILED])
def test_adversaries_are_no_fault(compiled: str, tmp_path: Path) -> None:
    done, run = judged(tmp_path, ADVERSARIES.format(compiled=compiled))
    assert done.returncode == 0, done.stderr
    assert serious(run) == []
    losses = run.scalars("losses", mode="train")
    assert len(losses) == 2
    assert all(len(loss.values) > 290 for loss in losses.values())
