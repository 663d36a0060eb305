"""Kill -9 of the trainer, the supervisor, the judge and the flow, each at a random moment.

Whatever is killed: no process is left over, every step that was committed is readable whole, and
after `reconcile` no MLflow run says RUNNING.
"""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import psutil
import pytest

from tests.cli.command_line import vinedresser
from tests.paths import ROOT
from tests.waiting import until
from vinedresser.objects import LocalStorage
from vinedresser.processes import marked_processes
from vinedresser.store.reading.reader import open_run
from vinedresser.store.records import Heartbeat, SupervisorRecord, heartbeat_key, read_record

SCRIPT = ROOT / "examples" / "digits" / "train.py"
LONG = 100_000

ReadMlflow = Callable[[Path], dict[str, Any]]

pytestmark = pytest.mark.timeout(300)


def start_flow(
    tmp_path: Path, variants: dict[str, str], max_concurrent: int
) -> subprocess.Popen[bytes]:
    """Start `vinedresser train` on a few trainings; its output is in flow.log."""
    tables = "\n".join(f"[variants.{name}]\n{text}" for name, text in variants.items())
    (tmp_path / "experiment.toml").write_text(
        f"""
        [run]
        name = "kill"
        command = ["python", "{SCRIPT}"]
        store = "runs"
        max_concurrent = {max_concurrent}
        grace = 5.0
        parameters = {{ model = "mlp", steps = {LONG} }}
        {tables}
        [capture.weights]
        every = 10
        """,
        encoding="utf-8",
    )
    with (tmp_path / "flow.log").open("wb") as log:
        return subprocess.Popen(
            [sys.executable, "-m", "vinedresser", "train", "experiment.toml"],
            cwd=tmp_path,
            stdout=log,
            stderr=log,
            env={**os.environ, "KILL_MATRIX": str(tmp_path), "PREFECT_HOME": str(tmp_path / "p")},
            start_new_session=True,
        )


@pytest.fixture(autouse=True)
def nothing_left(tmp_path: Path) -> Iterator[None]:
    """Kill whatever a failed test left behind."""
    yield
    for pid in marked_processes(f"KILL_MATRIX={tmp_path}"):
        os.kill(pid, signal.SIGKILL)


def last_step(run: Path) -> int:
    beat = read_record(LocalStorage(run), Heartbeat, key=heartbeat_key(0))
    return -1 if beat is None else beat.last_step


def until_step(run: Path, step: int) -> None:
    until(lambda: last_step(run) >= step, f"{run.name}: step {step}")


def supervision(run: Path) -> tuple[int, int]:
    record = read_record(LocalStorage(run), SupervisorRecord)
    assert record is not None
    return record.supervisor["pid"], record.trainer["pid"]


def judge_of(run: Path) -> int | None:
    """Return the judge that has the run's log open: the same process may judge others later."""
    for process in psutil.process_iter(["cmdline"]):
        command = process.info["cmdline"] or []
        if any(word.startswith("vinedresser.rules.") for word in command):
            with suppress(psutil.Error):
                if any(file.path.startswith(f"{run}/rules/") for file in process.open_files()):
                    return int(process.pid)
    return None


def committed(run: Path) -> set[int]:
    opened = open_run(run)
    return {int(step) for step in opened.steps("train")}


def assert_whole(run: Path, before: set[int]) -> None:
    """Every step that was committed is there, and each tensor of it passes its checksum."""
    opened = open_run(run)
    steps = {int(step) for step in opened.steps("train")}
    assert before <= steps
    assert steps == set(range(len(steps))), "losses are captured at every step"
    assert opened.problems == []
    for name in opened.tensor_names(collection="weights"):
        view = opened.tensor(name)
        for step in view.steps("train"):
            assert view.value(int(step)).shape == view.shape


def assert_no_process(tmp_path: Path) -> None:
    """Nothing that descends from the flow is alive: the environment tells its descendants."""
    marker = f"KILL_MATRIX={tmp_path}"
    until(lambda: not list(marked_processes(marker)), "the last process to end", 20.0)


# The seeds draw the moments; a few for every run of the tests, more where time does not matter.
SEEDS = [0, *(pytest.param(seed, marks=pytest.mark.slow) for seed in range(1, 10))]


@pytest.mark.slow
@pytest.mark.parametrize("seed", SEEDS)
def test_trainer_supervisor_and_judge(tmp_path: Path, seed: int, mlflow_runs: ReadMlflow) -> None:
    draw = random.Random(seed)
    store = tmp_path / "runs"
    flow = start_flow(
        tmp_path,
        {
            "trainer": "",
            "supervisor": "",
            "judge": "parameters = { naive-loss = true, scale = 1.0 }",
            "bystander": "parameters = { steps = 300 }",
        },
        max_concurrent=4,
    )
    runs = {name: store / f"kill-{name}" for name in ("trainer", "supervisor", "judge")}
    until(lambda: judge_of(runs["judge"]), "the judge")
    time.sleep(draw.uniform(0, 0.5))  # a random moment of its life
    os.kill(judge_of(runs["judge"]) or 0, signal.SIGKILL)

    before = {}
    for name, index in (("supervisor", 0), ("trainer", 1)):
        moment = draw.randrange(50, 400)
        until_step(runs[name], moment)
        before[name] = committed(runs[name])
        os.kill(supervision(runs[name])[index], signal.SIGKILL)

    assert flow.wait(timeout=120) == 1, (tmp_path / "flow.log").read_text()
    assert_no_process(tmp_path)
    for name, steps in before.items():
        assert_whole(runs[name], steps)
    assert open_run(runs["trainer"]).status.state == "killed"
    assert open_run(runs["trainer"]).status.signal == "SIGKILL"
    assert open_run(runs["supervisor"]).status.state == "killed"
    assert open_run(store / "kill-bystander").status.state == "finished"
    # The judge was killed, started again, and found what it would have found.
    assert open_run(runs["judge"]).status.state == "stopped"
    assert open_run(runs["judge"]).status.rule == "nonfinite"
    recorded = mlflow_runs(store)
    assert {name: entry["status"] for name, entry in recorded.items()} == {
        "kill-trainer": "KILLED",
        "kill-supervisor": "KILLED",
        "kill-judge": "KILLED",
        "kill-bystander": "FINISHED",
    }
    assert recorded["kill-judge"]["tags"]["stop.rule"] == "nonfinite"
    assert "stop.rule" not in recorded["kill-trainer"]["tags"]


@pytest.mark.thorough
@pytest.mark.parametrize("seed", SEEDS)
def test_flow(
    tmp_path: Path, seed: int, mlflow_runs: ReadMlflow, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PREFECT_HOME", str(tmp_path / "p"))
    draw = random.Random(seed)
    store = tmp_path / "runs"
    flow = start_flow(tmp_path, {"one": "", "two": "", "three": ""}, max_concurrent=2)
    runs = [store / f"kill-{name}" for name in ("one", "two")]
    for run in runs:
        moment = draw.randrange(20, 300)
        until_step(run, moment)
    before = [committed(run) for run in runs]
    flow.kill()
    flow.wait()

    # Without anybody's help: the trainings end with their checkpoint, the servers with their guard.
    assert_no_process(tmp_path)
    for run, steps in zip(runs, before, strict=True):
        assert_whole(run, steps)
        status = open_run(run).status
        assert (status.state, status.by) == ("stopped", "owner")
        assert list((run / "checkpoints").iterdir())
    assert "RUNNING" in {entry["status"] for entry in mlflow_runs(store).values()}

    for expected in ("kill-three", "nothing to reconcile"):
        done = vinedresser("reconcile", "runs", cwd=tmp_path, code=0)
        assert expected in done.stdout
    assert {entry["status"] for entry in mlflow_runs(store).values()} == {"KILLED"}
    assert_no_process(tmp_path)
