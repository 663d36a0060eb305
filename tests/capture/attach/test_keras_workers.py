"""`fit` of Keras on several workers: the same training as on one, captured and judged."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from vinedresser.store.reading.reader import open_run

# Writes the history of `fit` and the weights; prints nothing that the ranks would have to share.
SCRIPT = """
import contextlib, json, os, sys
import keras, numpy as np, tensorflow as tf

rank, several = os.environ.get("RANK", "0"), "RANK" in os.environ
strategy = tf.distribute.MultiWorkerMirroredStrategy() if several else None
keras.utils.set_random_seed(0)
generator = np.random.default_rng(0)
x = generator.normal(size=(int(sys.argv[3]), 8)).astype("float32")
y = (x.sum(1) > 0).astype("int32")
with strategy.scope() if several else contextlib.nullcontext():
    dense = keras.layers.Dense
    model = keras.Sequential([keras.Input((8,)), dense(16, activation="relu"), dense(2)])
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    rate = float(sys.argv[1])
    model.compile(keras.optimizers.SGD(rate), loss, metrics=["accuracy"])
options = tf.data.Options()
options.experimental_distribute.auto_shard_policy = tf.data.experimental.AutoShardPolicy.DATA
data = tf.data.Dataset.from_tensor_slices((x, y)).batch(16).with_options(options)
history = model.fit(data, epochs=int(sys.argv[2]), validation_data=data, verbose=0).history
weights = [one.tolist() for one in model.get_weights()]
with open(f"result-{rank}.json", "w") as file:
    json.dump([history, model.evaluate(data, verbose=0), weights], file)
"""


def trained(folder: Path, *words: str, code: int = 0) -> None:
    (folder / "fit.py").write_text(SCRIPT, encoding="utf-8")
    done = subprocess.run(
        [sys.executable, *words],
        cwd=folder,
        env={**os.environ, "TF_CPP_MIN_LOG_LEVEL": "2"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == code, done.stderr


def close(first: Any, second: Any) -> bool:
    """Return whether two nestings of numbers are equal up to rounding."""
    if isinstance(first, dict):
        return first.keys() == second.keys() and all(close(first[k], second[k]) for k in first)
    return bool(np.allclose(np.asarray(first), np.asarray(second), rtol=1e-4, atol=1e-5))


@pytest.mark.slow
def test_two_workers_train_as_one(tmp_path: Path) -> None:
    trained(tmp_path, "fit.py", "0.1", "2", "64")
    single = json.loads((tmp_path / "result-0.json").read_text())
    run = ("-m", "vinedresser", "run", "--ranks", "2", "--name", "fit")
    trained(tmp_path, *run, "fit.py", "0.1", "2", "64")
    first, second = (json.loads((tmp_path / f"result-{rank}.json").read_text()) for rank in "01")
    assert first == second
    for one, reference in zip(first[:2], single[:2], strict=True):
        assert close(one, reference)
    for one, reference in zip(first[2], single[2], strict=True):
        assert close(one, reference)
    stored = open_run(tmp_path / "runs/fit")
    assert stored.info.world_size == 2
    assert stored.steps().tolist() == stored.steps(rank=1).tolist() == [*range(8)]


@pytest.mark.slow
def test_a_rule_stops_both_workers_after_the_same_step(tmp_path: Path) -> None:
    run = ("-m", "vinedresser", "run", "--ranks", "2", "--name", "fit", "--preset", "default")
    trained(tmp_path, *run, "fit.py", "1e30", "1000", "64", code=3)
    stored = open_run(tmp_path / "runs/fit")
    assert stored.status.rule == "nonfinite"
    assert stored.steps().tolist() == stored.steps(rank=1).tolist()
    assert len(list((tmp_path / "runs/fit/checkpoints").iterdir())) == 1


@pytest.mark.slow
@pytest.mark.timeout(400)
def test_a_thousand_clean_steps_are_silent(tmp_path: Path) -> None:
    run = ("-m", "vinedresser", "run", "--ranks", "2", "--name", "fit", "--preset", "default")
    trained(tmp_path, *run, "fit.py", "0.1", "5", "3200")
    stored = open_run(tmp_path / "runs/fit")
    assert stored.steps().tolist() == stored.steps(rank=1).tolist() == [*range(1000)]
    assert stored.findings() == []


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("version", "workers", "repaired", "said"),
    [
        ("3.15.1", 2, True, 0),
        ("3.15.1", 1, False, 0),
        ("3.99.0", 2, False, 1),
        ("3.99.0", 1, False, 0),
    ],
)
def test_only_known_versions_are_repaired(
    monkeypatch: pytest.MonkeyPatch, version: str, workers: int, *, repaired: bool, said: int
) -> None:
    import keras
    from keras.src.backend.tensorflow import trainer

    from vinedresser.capture.attach.keras_training import repair_fit

    monkeypatch.setattr(keras, "__version__", version)
    cluster = {"worker": [f"127.0.0.1:{port}" for port in range(workers)]}
    monkeypatch.setenv("TF_CONFIG", json.dumps({"cluster": cluster, "task": {}}))
    before = trainer.reduce_per_replica
    # Both are restored after the test.
    monkeypatch.setattr(trainer, "reduce_per_replica", before)
    build = "_maybe_symbolic_build"
    monkeypatch.setattr(trainer.TensorFlowTrainer, build, getattr(trainer.TensorFlowTrainer, build))
    sentences: list[str] = []
    repair_fit(sentences.append)
    assert (trainer.reduce_per_replica is not before) is repaired
    assert len(sentences) == said
    assert all(version in sentence for sentence in sentences)
