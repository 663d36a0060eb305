"""The judging process: few imports, ends with the run or its parent, survives a kill."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np
import pytest

from tests.rules.runs import RunStore
from tests.rules.trainings import trained
from vinedresser.objects import LocalStorage
from vinedresser.processes import identify
from vinedresser.rules.findings_file import FindingsFile, finding_line
from vinedresser.rules.judge import judge
from vinedresser.rules.registry import RULES
from vinedresser.store.finding import Finding
from vinedresser.store.reading.reader import open_run
from vinedresser.store.records import findings_key
from vinedresser.store.writing.writer import RunWriter
from vinedresser.testing.runs import end_run, start_run, step_record


@pytest.fixture
def spec(tmp_path: Path) -> Path:
    path = tmp_path / "rules.json"
    path.write_text(json.dumps({"rules": {name: {"group": "all"} for name in RULES}}))
    return path


def finding(step: int) -> Finding:
    """Return some finding."""
    return Finding("r", "info", step, step, "train", 0, "", "", 0.0, 0.0, 1.0, "", "", "", {})


def command(run: Path, spec: Path) -> list[str]:
    module = [sys.executable, "-m", "vinedresser.rules.worker"]
    return [*module, str(run), "--group", "all", "--spec", str(spec)]


def start(run: Path, spec: Path) -> subprocess.Popen[str]:
    return subprocess.Popen(command(run, spec), stderr=subprocess.PIPE, text=True)


def wait_for(condition: Callable[[], bool], what: str) -> None:
    deadline = time.monotonic() + 30
    while not condition():
        assert time.monotonic() < deadline, f"waited in vain: {what}"
        time.sleep(0.01)


def ended(worker: subprocess.Popen[str]) -> tuple[int, str]:
    """Return the exit code of a worker and its error output."""
    _, said = worker.communicate(timeout=60)
    return worker.returncode, said


@pytest.mark.thorough
def test_writes_what_a_judge_finds(tmp_path: Path, spec: Path, runs: RunStore) -> None:
    finished = shutil.copytree(trained("vanishing", runs), tmp_path / "run")
    assert ended(start(finished, spec)) == (0, "")
    run = open_run(finished)
    found = judge(run, [kind() for kind in RULES.values()])
    assert run.findings() == sorted(found, key=lambda one: (one.step, one.rule, one.tensor)) != []


@pytest.mark.thorough
def test_killed_and_started_again_it_writes_the_same(tmp_path: Path, spec: Path) -> None:
    directory = tmp_path / "run"
    start_run(directory)
    writer = RunWriter(LocalStorage(directory), 0)
    file = directory / findings_key("all")

    def lines() -> int:
        return len(file.read_bytes().splitlines()) if file.exists() else 0

    def has_more(than: int) -> bool:
        return lines() > than

    known = 0
    # The loss rises, stays high and is NaN at step 300; each finding is followed by a kill.
    for steps in (range(300), range(300, 320)):
        worker = start(directory, spec)
        for step in steps:
            loss = float("nan") if step == 300 else 1.0 if step < 20 else 5.0
            writer.add(step_record(step, scalars={"losses/a": loss}))
        wait_for(partial(has_more, known), "another finding")
        known = lines()
        worker.kill()
        ended(worker)
    writer.close()
    end_run(directory)
    assert ended(start(directory, spec)) == (0, "")
    run = open_run(directory)
    found = judge(run, [kind() for kind in RULES.values()])
    rules = [json.loads(line)["rule"] for line in file.read_text().splitlines()]
    assert rules == [one.rule for one in found]
    assert {"loss_not_decreasing", "nonfinite"} <= set(rules)


@pytest.mark.parametrize("damage", [os.mkfifo, partial(Path.write_bytes, data=b"\xff{")])
def test_a_damaged_file_is_replaced(tmp_path: Path, damage: Callable[[Path], object]) -> None:
    path = tmp_path / findings_key("all")
    path.parent.mkdir()
    damage(path)
    file = FindingsFile(LocalStorage(tmp_path), "all")
    file.add(finding(3))
    file.close()
    assert path.read_text() == finding_line(finding(3)) + "\n"


def test_a_restarted_judge_keeps_stored_findings(tmp_path: Path) -> None:
    storage = LocalStorage(tmp_path)
    first, second, other = (finding(step) for step in (1, 2, 3))
    file = FindingsFile(storage, "all")
    file.add(first)
    file.add(second)
    content = storage.get(findings_key("all"))
    again = FindingsFile(storage, "all")
    again.add(first)
    assert storage.get(findings_key("all")) == content
    again.add(other)
    again.close()
    steps = [json.loads(line)["step"] for line in storage.get(findings_key("all")).splitlines()]
    assert steps == [1, 3]


def test_numbers_of_numpy_are_written_as_numbers(tmp_path: Path) -> None:
    storage = LocalStorage(tmp_path)
    evidence = {"share": np.float32(0.5), "steps": np.arange(2)}
    FindingsFile(storage, "all").add(replace(finding(1), evidence=evidence))
    (line,) = storage.get(findings_key("all")).splitlines()
    assert json.loads(line)["evidence"] == {"share": 0.5, "steps": [0, 1]}


def test_a_run_without_findings_leaves_an_empty_file(tmp_path: Path, spec: Path) -> None:
    spec.write_text(json.dumps({"rules": {}}))
    start_run(tmp_path / "run")
    end_run(tmp_path / "run")
    assert ended(start(tmp_path / "run", spec)) == (0, "")
    assert (tmp_path / "run" / findings_key("all")).read_bytes() == b""


@pytest.mark.thorough
def test_waits_until_the_run_begins(tmp_path: Path, spec: Path) -> None:
    directory = tmp_path / "later"
    worker = start(directory, spec)
    time.sleep(0.3)
    assert worker.poll() is None
    start_run(directory)
    wait_for((directory / "waiting.json").exists, "it asks for the steps at once")
    end_run(directory)
    assert ended(worker) == (0, "")


@pytest.mark.thorough
def test_ends_when_its_parent_is_killed(tmp_path: Path, spec: Path) -> None:
    start_run(tmp_path / "run")
    code = (
        "import subprocess, sys, time\n"
        "print(subprocess.Popen(sys.argv[1:]).pid, flush=True)\n"
        "time.sleep(600)"
    )
    parent = subprocess.Popen(
        [sys.executable, "-c", code, *command(tmp_path / "run", spec)],
        stdout=subprocess.PIPE,
        text=True,
    )
    assert parent.stdout is not None
    worker = int(parent.stdout.readline())
    wait_for((tmp_path / "run" / "waiting.json").exists, "the worker follows")
    os.kill(parent.pid, signal.SIGKILL)
    parent.communicate()
    wait_for(lambda: identify(worker) is None, "the worker ends")


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("{", "must be a JSON file"),
        ('{"rules": {"nonfinit": {}}}', "rules.nonfinit: no such rule; did you mean nonfinite?"),
        ('{"rules": []}', "rules: must be a table"),
    ],
)
def test_an_invalid_spec_ends_it_at_once(
    tmp_path: Path, spec: Path, content: str, message: str
) -> None:
    spec.write_text(content)
    code, said = ended(start(tmp_path, spec))
    assert code == 2
    assert message in said
    assert str(spec) in said
    assert "Traceback" not in said


def test_loads_little() -> None:
    code = "import vinedresser.rules.worker, sys; print(*sys.modules)"
    result = subprocess.run(
        [sys.executable, "-c", code], check=True, capture_output=True, text=True
    )
    loaded = {name.partition(".")[0] for name in result.stdout.split()}
    assert not loaded & {"torch", "pydantic", "prefect", "mlflow", "sklearn", "pandas", "asyncio"}
