"""Runs on S3: same contents, unchanged trainings, early errors."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
import torch

from tests.capture.hook.s3_training import batch, check_steps
from vinedresser import open_run
from vinedresser.capture import Hook
from vinedresser.capture.requests.requesting import await_change, request_capture
from vinedresser.errors import AlreadyARun, SecondWriter, StoreError
from vinedresser.objects import open_storage
from vinedresser.store.collections.collection import Collection
from vinedresser.store.collections.schedule import SaveConfig
from vinedresser.store.records import StopRecord, write_record
from vinedresser.store.spool import spools

EVERYTHING = {
    "weights": SaveConfig(every=1),
    "gradients": SaveConfig(every=2, reductions=("l2",)),
    "inputs": SaveConfig(every=1),
}


def train(path: str | None) -> dict[str, torch.Tensor]:
    """Train a small network for 20 steps, watched if there is a path; return its weights."""
    torch.manual_seed(1)
    model = torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.ReLU(), torch.nn.Linear(16, 3))
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    loss_module = torch.nn.CrossEntropyLoss()
    hook = None
    if path is not None:
        hook = Hook(path, collections=EVERYTHING)
        hook.watch(model, loss=loss_module, optimizer=optimizer)
    for _ in range(20):
        inputs, labels = torch.randn(32, 8), torch.randint(0, 3, (32,))
        optimizer.zero_grad()
        loss_module(model(inputs), labels).backward()
        optimizer.step()
    if hook is not None:
        hook.close()
        assert hook.problems == []
    return model.state_dict()


@pytest.mark.thorough
def test_a_run_on_s3_is_the_run_in_a_directory_and_the_training_the_same(
    s3: str, tmp_path: Path
) -> None:
    plain, local, remote = train(None), train(str(tmp_path / "run")), train(f"{s3}/run")
    for name, value in plain.items():
        assert torch.equal(value, local[name])
        assert torch.equal(value, remote[name])
    here, there = open_run(tmp_path / "run"), open_run(f"{s3}/run")
    assert there.status.state == "finished"
    assert there.info.name == "run"
    assert there.tensor_names() == here.tensor_names() != []
    for name in here.tensor_names():
        for step in here.tensor(name).steps("train").tolist():
            assert np.array_equal(here.tensor(name).value(step), there.tensor(name).value(step))
    assert list(there.scalars()) == list(here.scalars())
    assert there.problems == []
    # Uploaded data is not kept elsewhere.
    assert spools() == []


@pytest.mark.thorough
def test_the_store_is_not_loaded_into_the_training(s3: str) -> None:
    code = (
        "import sys\nfrom vinedresser.capture import Hook\n"
        f"hook = Hook('{s3}/run')\nhook.step(loss=1.0)\nhook.close()\n"
        "print('boto3' in sys.modules or 'botocore' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert (done.stdout, done.stderr) == ("False\n", "")
    assert open_run(f"{s3}/run").steps().tolist() == [0]


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("name", "value", "sentence"),
    [
        ("AWS_ACCESS_KEY_ID", "unknown", "check AWS_ACCESS_KEY_ID"),
        ("AWS_SECRET_ACCESS_KEY", "wrong", "check AWS_SECRET_ACCESS_KEY"),
        ("AWS_ENDPOINT_URL", "http://127.0.0.1:9", "no server answers at http://127.0.0.1:9"),
    ],
)
def test_store_errors_are_reported_before_the_training(
    s3: str, monkeypatch: pytest.MonkeyPatch, name: str, value: str, sentence: str
) -> None:
    monkeypatch.setenv(name, value)
    with pytest.raises(StoreError, match=sentence):
        Hook(f"{s3}/run", strict=True)
    with Hook(f"{s3}/run") as hook:
        assert re.search(f"{sentence}.*; training continues", hook.problems[0])
    assert spools() == []


@pytest.mark.thorough
def test_a_missing_bucket_is_reported_before_the_training(s3: str) -> None:
    with pytest.raises(StoreError, match="there is no bucket not-made; create it"):
        Hook("s3://not-made/run", strict=True)
    assert spools() == []


@pytest.mark.thorough
def test_a_second_run_at_the_same_location_is_numbered(s3: str) -> None:
    with Hook(f"{s3}/run", collections={"inputs": SaveConfig(every=1)}) as hook:
        hook.step(inputs=batch(0), loss=0.0)
        with Hook(f"{s3}/run") as other:
            other.step(loss=1.0)
        with pytest.raises(AlreadyARun, match=f"{s3}/run: already holds a run"):
            Hook(f"{s3}/run", strict=True)
        hook.step(inputs=batch(1), loss=0.0)
    assert other.path == f"{s3}/run-2"
    assert check_steps(open_run(f"{s3}/run")) == 2
    assert open_run(f"{s3}/run-2").steps().tolist() == [0]
    assert spools() == []


@pytest.mark.thorough
def test_each_rank_uploads_its_data_and_has_one_writer(
    s3: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WORLD_SIZE", "2")
    monkeypatch.setenv("RANK", "0")
    first = Hook(f"{s3}/run")
    monkeypatch.setenv("RANK", "1")
    second = Hook(f"{s3}/run")
    with pytest.raises(SecondWriter, match="rank 1 already has a writer"):
        Hook(f"{s3}/run", strict=True)
    for step in range(3):
        first.step(loss=float(step))
        second.step(loss=float(10 + step))
    second.close()
    first.close()
    run = open_run(f"{s3}/run")
    assert run.status.state == "finished"
    assert run.scalars("losses", rank=0)["losses/loss"].values.tolist() == [0, 1, 2]
    assert run.scalars("losses", rank=1)["losses/loss"].values.tolist() == [10, 11, 12]
    assert spools() == []


@pytest.mark.thorough
def test_a_reader_sees_steps_while_they_are_made(s3: str) -> None:
    with Hook(f"{s3}/run", collections={"inputs": SaveConfig(every=1)}) as hook:
        steps = open_run(f"{s3}/run").follow(urgent=True)
        for step in range(3):
            hook.step(inputs=batch(step), loss=step / 2)
            seen = next(steps)
            assert seen.step == step
            assert np.array_equal(seen.tensor("inputs/batch"), batch(step))
        assert open_run(f"{s3}/run").status.state == "running"
    assert list(steps) == []
    assert open_run(f"{s3}/run").status.state == "finished"


@pytest.mark.thorough
def test_requests_reach_a_training_through_the_store(s3: str) -> None:
    with Hook(f"{s3}/run") as hook:
        hook.step(inputs=batch(0), loss=0.0)
        asked = Collection("inputs", save=SaveConfig(every=1))
        number = request_capture(open_storage(f"{s3}/run"), [asked])
        deadline = time.monotonic() + 30
        storage, change, steps = open_storage(f"{s3}/run"), None, 1
        while change is None and time.monotonic() < deadline:
            hook.step(inputs=batch(steps), loss=0.0)
            steps += 1
            change = await_change(storage, number, 0.2)
        assert change is not None
        assert not change.refused
        while steps <= change.step:
            hook.step(inputs=batch(steps), loss=0.0)
            steps += 1
    captured = open_run(f"{s3}/run").tensor("inputs/batch").steps("train").tolist()
    assert captured == list(range(change.step, steps))


@pytest.mark.thorough
def test_the_store_says_who_requested_the_stop(s3: str) -> None:
    """An unsupervised training is stopped by SIGTERM, and stop.json in the store has the reason."""
    script = Path(__file__).with_name("s3_training.py")
    command = [sys.executable, str(script), f"{s3}/run", "0", "0.01"]
    environment = {**os.environ, "PYTHONPATH": str(script.parent.parent)}
    with subprocess.Popen(command, stdout=subprocess.PIPE, env=environment) as trainer:
        assert trainer.stdout is not None
        for _ in range(5):
            trainer.stdout.readline()
        stop = StopRecord("person", "seen enough", time.time())
        write_record(open_storage(f"{s3}/run"), stop, exclusive=True)
        deadline = time.monotonic() + 30
        while not list(Path(os.environ["VINEDRESSER_SPOOL"]).glob("*/stop.json")):
            assert time.monotonic() < deadline
            time.sleep(0.02)
        trainer.terminate()
        trainer.stdout.read()
    status = open_run(f"{s3}/run").status
    assert (status.state, status.by, status.reason) == ("stopped", "person", "seen enough")
    assert open_storage(f"{s3}/run").list("checkpoints/") == []
    assert check_steps(open_run(f"{s3}/run")) >= 5
