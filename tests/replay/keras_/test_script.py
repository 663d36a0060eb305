"""A broken step of `fit` runs again in the script that trained, which needs no factory."""

from __future__ import annotations

import shlex
from pathlib import Path

import pytest

from tests.replay.test_script import call, files
from vinedresser.store.reading.reader import open_run

# The base is trained first, with another model; one target has no logarithm.
FIT = """
import sys
import keras
import numpy as np
from keras import layers, ops

keras.utils.set_random_seed(int(sys.argv[1]))
x = np.random.rand(96, 5).astype("float32")
y = x[:, :1].copy()
base = keras.Sequential([keras.Input((5,)), layers.Dense(4, activation="relu")])
first = keras.Sequential([base, layers.Dense(2)])
first.compile("sgd", "mse")
first.fit(x, x[:, :2], epochs=1, verbose=0)
inputs = keras.Input((5,))
model = keras.Model(inputs, layers.Dense(1, activation="softplus")(base(inputs)))

def log_error(wanted, found):
    return ops.mean(ops.square(ops.log(wanted + 0.5) - ops.log(found + 0.5)), axis=-1)

model.compile(keras.optimizers.Adam(1e-3), loss=log_error)
y[40] = -1.0
model.fit(x, y, batch_size=32, epochs=2, verbose=0, shuffle=False)
open("done.txt", "a").write("done")
"""

LOOP = """
import keras
import numpy as np
import tensorflow as tf

model = keras.Sequential([keras.Input((5,)), keras.layers.Dense(1)])
optimizer = keras.optimizers.SGD(0.1)
for step in range(4):
    with tf.GradientTape() as tape:
        found = model(np.random.rand(8, 5).astype("float32"), training=True)
        loss = tf.reduce_mean(tf.sqrt(found - found * (step == 2)))
    gradients = tape.gradient(loss, model.trainable_variables)
    optimizer.apply_gradients(zip(gradients, model.trainable_variables))
"""


def trained(folder: Path, script: str, *arguments: str) -> str:
    """Run an unchanged script; return the command that its last finding of the guard suggests."""
    folder.joinpath("train.py").write_text(script, encoding="utf-8")
    options = ("--name", "run", "--guard", "nonfinite")
    call(folder, "-m", "vinedresser", "run", *options, "train.py", *arguments)
    findings = [
        finding
        for finding in open_run(next(folder.glob("runs/*"))).findings()
        if "replay" in finding.remedy
    ]
    return findings[-1].remedy.partition("vinedresser ")[2].partition("; it names")[0]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("backend", "operation"),
    [
        ("tensorflow", "Log in the forward"),
        pytest.param("torch", "aten.log in the", marks=pytest.mark.slow),
    ],
)
def test_the_command_of_the_finding_works_as_it_stands(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, backend: str, operation: str
) -> None:
    monkeypatch.setenv("KERAS_BACKEND", backend)
    command = trained(tmp_path, FIT, "0")
    assert "--script train.py --locate --bisect -- 0" in command
    before = files(tmp_path)
    told = call(tmp_path, "-m", "vinedresser", *shlex.split(command))
    assert "loss nan: the same   gradients: 4 of 4 the same" in told
    assert f"operation: {operation}" in told
    assert "ops.log(wanted + 0.5)" in told
    assert "sample 8 of 32," in told
    # The process ends before the training of the model.
    assert {one: before[one] for one in before} == {one: files(tmp_path)[one] for one in before}
    assert (tmp_path / "done.txt").read_text(encoding="utf-8") == "done"
    place = command.split()[1]
    tmp_path.joinpath("train.py").write_text(FIT.replace("Dense(1, ", "Dense(3, "))
    told = call(
        tmp_path, "-m", "vinedresser", "replay", place, "--script", "train.py", "--", "0", code=2
    )
    assert "it trained no model with the recorded parameters" in told


@pytest.mark.slow
def test_a_custom_loop_is_refused(tmp_path: Path) -> None:
    command = trained(tmp_path, LOOP)
    assert "--factory MODULE:FUNCTION" in command
    place = command.split()[1]
    told = call(tmp_path, "-m", "vinedresser", "replay", place, "--script", "train.py", code=2)
    assert "--script needs a step of fit or train_on_batch of one model" in told
