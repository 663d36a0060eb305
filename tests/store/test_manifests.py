"""Long runs of small segments: manifests replace index records with the same result."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterable
from pathlib import Path

import numpy as np
import pytest

from tests.store.counting_storage import CountingStorage
from vinedresser.errors import StoreFull
from vinedresser.objects import LocalStorage
from vinedresser.objects.base import Buffer
from vinedresser.store.index.manifest import SPAN
from vinedresser.store.reading.reader import open_run
from vinedresser.store.records import index_key, manifest_key
from vinedresser.store.writing.writer import RunWriter
from vinedresser.testing.runs import end_run, start_run, step_record

COMMITS = 2 * SPAN + 30


def write(folder: Path, commits: int = COMMITS, storage: LocalStorage | None = None) -> RunWriter:
    """Write a run with a segment a step; the writer is closed."""
    start_run(folder)
    writer = RunWriter(storage or LocalStorage(folder))
    for step in range(commits):
        value = np.full(3, step, np.float32)
        writer.add(step_record(step, tensors={"x": value}, scalars={"losses/loss": step}))
        writer.flush()
    writer.close()
    return writer


@pytest.fixture(scope="module")
def original(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("original")
    write(folder)
    end_run(folder)
    return folder


@pytest.fixture
def folder(original: Path, tmp_path: Path) -> Path:
    """A copy that a test may damage."""
    return shutil.copytree(original, tmp_path / "run")


def assert_whole(folder: Path, *, problems: int = 0) -> None:
    """Everything is read, by every way there is to read it."""
    steps = list(range(COMMITS))
    run = open_run(folder)
    assert run.steps().tolist() == steps
    assert [(step, float(value[0])) for step, value in run.tensor("x").values()] == [
        (step, float(step)) for step in steps
    ]
    assert run.scalars()["losses/loss"].values.tolist() == steps
    assert [step.step for step in run.follow()] == steps
    assert [step.ordinal for step in run.follow()] == steps
    assert len(run.problems) == problems
    assert float(open_run(folder).tensor("x").value(SPAN + 7)[0]) == SPAN + 7


def test_opening_reads_manifests_instead_of_records(folder: Path) -> None:
    assert LocalStorage(folder).list("manifests/") == [manifest_key(0, 0), manifest_key(0, 1)]
    storage = CountingStorage(folder)
    assert open_run(storage).steps().tolist() == list(range(COMMITS))
    assert storage.asked["manifests"] <= 4  # two of them are not there
    assert storage.asked["index"] <= 30 + 16
    assert storage.journeys <= 10
    assert storage.asked["exists"] <= 4
    assert_whole(folder)


def test_every_record_is_the_same_from_a_manifest(folder: Path) -> None:
    with_manifests = open_run(folder)
    found = [
        (step.mode, step.step, step.time, dict(step.scalars)) for step in with_manifests.follow()
    ]
    for path in (folder / "manifests/0").iterdir():
        path.unlink()
    without = open_run(folder)
    assert [(s.mode, s.step, s.time, dict(s.scalars)) for s in without.follow()] == found
    assert_whole(folder)


@pytest.mark.parametrize("number", [0, 1])
def test_a_corrupt_manifest_is_reported_and_loses_nothing(folder: Path, number: int) -> None:
    path = folder / manifest_key(0, number)
    path.write_bytes(path.read_bytes()[:-5])
    assert_whole(folder, problems=1)
    run = open_run(folder)
    run.steps()
    assert any(re.match(rf"{path}: .*checksum", problem) for problem in run.problems)


def test_a_manifest_makes_up_for_a_lost_record(folder: Path) -> None:
    (folder / index_key(0, SPAN + 3)).write_bytes(b"lost")
    (folder / index_key(0, 5)).unlink()
    assert_whole(folder)


def test_a_manifest_in_the_place_of_another_is_refused(folder: Path) -> None:
    one, other = folder / manifest_key(0, 0), folder / manifest_key(0, 1)
    other.write_bytes(one.read_bytes())
    assert_whole(folder, problems=1)


def test_a_manifest_uploaded_before_its_records_is_ignored(folder: Path) -> None:
    """An uploader may bring it while the last of them is still on its way."""
    last = 2 * SPAN - 1
    for seq in range(last - 1, COMMITS):
        (folder / index_key(0, seq)).unlink()
    run = open_run(folder)
    assert run.steps().tolist() == list(range(last - 1))
    assert [step.step for step in run.follow()] == list(range(last - 1))


def test_following_costs_the_same_at_every_step(tmp_path: Path) -> None:
    start_run(tmp_path)
    writer = RunWriter(LocalStorage(tmp_path))
    storage = CountingStorage(tmp_path)
    run = open_run(storage)
    costs = []
    for step in range(SPAN + 20):
        writer.add(step_record(step))
        writer.flush()
        storage.asked.clear()
        assert run.refresh() == 1
        costs.append(sum(storage.asked.values()))
    writer.close()
    assert max(costs[2:]) <= 4
    storage.asked.clear()
    assert run.refresh() == 0
    assert sum(storage.asked.values()) <= 3


@pytest.mark.thorough
def test_large_records_have_no_manifest(tmp_path: Path) -> None:
    """Reading them one by one costs no more, and the trainer need not keep them in mind."""
    start_run(tmp_path)
    writer = RunWriter(LocalStorage(tmp_path))
    tensors = {f"weights/{number}": np.zeros(1, np.int8) for number in range(1_400)}
    for step in range(SPAN):
        writer.add(step_record(step, tensors=tensors))
        writer.flush()
    writer.close()
    assert LocalStorage(tmp_path).list("manifests/") == []
    assert len(open_run(tmp_path).steps()) == SPAN


def test_changing_layouts_count_as_well(tmp_path: Path) -> None:
    start_run(tmp_path)
    writer = RunWriter(LocalStorage(tmp_path))
    for step in range(SPAN):
        name = f"outputs/{step}-{'x' * 20_000}"
        writer.add(step_record(step, tensors={name: np.zeros(1, np.int8)}))
        writer.flush()
    writer.close()
    assert LocalStorage(tmp_path).list("manifests/") == []


def test_a_failed_manifest_loses_no_step(tmp_path: Path) -> None:
    class NoRoomForManifests(LocalStorage):
        def put(self, key: str, parts: Iterable[Buffer], *, exclusive: bool = False) -> None:
            if key.startswith("manifests/"):
                raise StoreFull(f"{key}: no space left")
            super().put(key, parts, exclusive=exclusive)

    writer = write(tmp_path, storage=NoRoomForManifests(tmp_path))
    assert writer.dropped == 0
    (problem,) = writer.problems
    assert problem.endswith(": manifests/0/000000000000.json: no space left")
    end_run(tmp_path)
    assert_whole(tmp_path)


@pytest.mark.thorough
def test_a_writer_killed_around_a_manifest(tmp_path: Path) -> None:
    """Whenever it is killed, all that is committed is read, with a manifest or without."""
    script = (
        "import sys; from vinedresser.objects import LocalStorage\n"
        "from vinedresser.store.writing.writer import RunWriter\n"
        "from vinedresser.testing.runs import step_record\n"
        "writer = RunWriter(LocalStorage(sys.argv[1]))\n"
        "for step in range(10**9):\n"
        "    writer.add(step_record(step, scalars={'losses/loss': step})); writer.flush()\n"
    )
    for turn in range(4):
        folder = tmp_path / str(turn)
        start_run(folder)
        process = subprocess.Popen([sys.executable, "-c", script, str(folder)])
        # Just before the manifest, and just when it is there.
        sign = folder / (manifest_key(0, 1) if turn % 2 else index_key(0, 2 * SPAN - 1))
        deadline = time.monotonic() + 60
        while not sign.exists():
            assert time.monotonic() < deadline
        os.kill(process.pid, signal.SIGKILL)
        process.wait()
        run = open_run(folder)
        steps = run.steps().tolist()
        assert steps == list(range(len(steps)))
        assert len(steps) == len(LocalStorage(folder).list("index/"))
        assert run.scalars()["losses/loss"].values.tolist() == steps
        assert run.problems == []


def test_a_manifest_stores_each_layout_once(folder: Path) -> None:
    document = json.loads((folder / manifest_key(0, 1)).read_bytes())["manifest"]
    assert (document["rank"], document["first"], len(document["records"])) == (0, SPAN, SPAN)
    assert len(document["layouts"]) == 2
    records = [folder / index_key(0, seq) for seq in range(SPAN)]
    size = sum(path.stat().st_size for path in records)
    assert (folder / manifest_key(0, 1)).stat().st_size < size
