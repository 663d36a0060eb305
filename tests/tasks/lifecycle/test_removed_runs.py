"""Directories of runs and sweeps that are removed while they train, with and without a flow."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.cli.command_line import started_vinedresser, vinedresser
from tests.paths import SCRIPTS
from tests.waiting import until
from vinedresser.processes import marked_processes
from vinedresser.tasks.places.run_place import REMOVED

EXPERIMENT = f"""
[run]
name = "one"
command = ["python", "{SCRIPTS / "cluster_trainer.py"}"]
store = "runs"
parameters = {{ x = 0.5, epochs = 9000, pause = 0.1 }}

[rules.nonfinite]
"""

SWEEP = f"""
[run]
name = "search"
command = ["python", "{SCRIPTS / "cluster_trainer.py"}"]
store = "runs"
max_concurrent = 1
parameters = {{ epochs = 9000, pause = 0.1 }}

[sweep]
metric = "accuracy"
direction = "maximize"
trials = 3

[space]
x = [0.1, 0.9]
"""

ReadMlflow = Callable[[Path], dict[str, Any]]

pytestmark = [
    pytest.mark.thorough,
    pytest.mark.timeout(300),
    pytest.mark.usefixtures("shared_prefect"),
]


@contextmanager
def training(tmp_path: Path, command: str, file: str, run: Path) -> Iterator[subprocess.Popen[str]]:
    """Start a flow in a folder, and wait until a run trains."""
    (tmp_path / "file.toml").write_text(file, encoding="utf-8")
    started = started_vinedresser(
        command, "file.toml", cwd=tmp_path, environment={"REMOVED": str(tmp_path)}, group=True
    )
    until(lambda: list(run.glob("index/0/*.json")), "training")
    yield started
    for pid in marked_processes(f"REMOVED={tmp_path}"):
        os.kill(pid, signal.SIGKILL)
    started.communicate()


@pytest.fixture
def flow(
    tmp_path: Path, mlflow_store: Callable[[Path], Path]
) -> Iterator[tuple[subprocess.Popen[str], Path]]:
    """Return a flow whose only run trains, and the run's directory."""
    run = mlflow_store(tmp_path / "runs") / "one"
    with training(tmp_path, "train", EXPERIMENT, run) as started:
        yield started, run


@pytest.fixture
def sweep(
    tmp_path: Path, mlflow_store: Callable[[Path], Path]
) -> Iterator[tuple[subprocess.Popen[str], Path]]:
    """Return the flow of a sweep whose first trial trains, and the folder of the sweep."""
    folder = mlflow_store(tmp_path / "runs") / "search"
    with training(tmp_path, "sweep", SWEEP, folder / "trial-0000") as started:
        yield started, folder


def remove(run: Path) -> None:
    """Remove a directory to which others write at the same moment."""

    def gone() -> bool:
        subprocess.run(["rm", "-rf", run], check=False, stderr=subprocess.DEVNULL)
        return not run.exists()

    until(gone, "removal")


def nothing_left(run: Path) -> bool:
    """Return whether all processes of a flow have ended."""
    return not list(marked_processes(f"REMOVED={run.parent.parent}"))


def test_a_flow_ends_a_run_whose_directory_is_removed(
    flow: tuple[subprocess.Popen[str], Path], mlflow_runs: ReadMlflow
) -> None:
    started, run = flow
    remove(run)
    output, _ = started.communicate(timeout=60)
    assert started.returncode == 1, output
    (row,) = (line for line in output.splitlines() if line.startswith("one "))
    assert "killed" in row
    assert "its run directory was removed" in row
    problems = [line for line in output.splitlines() if line.startswith("vinedresser: ")]
    assert "Traceback" not in output
    assert problems == [f"vinedresser: {REMOVED.format(run)}"], output
    until(lambda: nothing_left(run), "the last process to end")
    assert not run.exists(), sorted(run.rglob("*"))
    entry = mlflow_runs(run.parent)["one"]
    assert entry["status"] == "KILLED"
    assert entry["tags"]["exit.reason"] == "its run directory was removed"
    done = vinedresser("reconcile", "runs", cwd=run.parent.parent)
    assert (done.returncode, done.stdout) == (0, "nothing to reconcile\n"), done.stdout


def test_reconcile_settles_a_removed_run_whose_flow_is_dead(
    flow: tuple[subprocess.Popen[str], Path], mlflow_runs: ReadMlflow
) -> None:
    started, run = flow
    started.kill()
    remove(run)
    until(lambda: nothing_left(run), "the last process to end")
    assert mlflow_runs(run.parent)["one"]["status"] == "RUNNING"
    done = vinedresser("reconcile", "runs", cwd=run.parent.parent)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "one   killed: its run directory was removed" in done.stdout
    assert mlflow_runs(run.parent)["one"]["status"] == "KILLED"
    done = vinedresser("reconcile", "runs", cwd=run.parent.parent)
    assert (done.returncode, done.stdout) == (0, "nothing to reconcile\n"), done.stdout


@pytest.mark.slow
def test_a_sweep_whose_folder_is_removed_begins_no_other_trial_and_ends(
    sweep: tuple[subprocess.Popen[str], Path], mlflow_runs: ReadMlflow
) -> None:
    started, folder = sweep
    remove(folder)
    output, _ = started.communicate(timeout=60)
    assert started.returncode == 1, output
    assert "Traceback" not in output
    said = f"vinedresser: {folder}: the folder of the sweep was removed while it ran"
    assert said in output.splitlines()
    assert "report " not in output
    until(lambda: nothing_left(folder), "the last process to end")
    assert not folder.exists()
    told = mlflow_runs(folder.parent)
    assert {name: one["status"] for name, one in told.items()} == {
        "search": "KILLED",
        "trial-0000": "KILLED",
    }
    assert told["search"]["tags"]["sweep.over"] == "its folder was removed"
    done = vinedresser("reconcile", "runs", cwd=folder.parent.parent)
    assert (done.returncode, done.stdout) == (0, "nothing to reconcile\n"), done.stdout


@pytest.mark.slow
@pytest.mark.parametrize("store", ["runs", "runs/search"])
def test_reconcile_settles_a_removed_sweep_whose_flow_is_dead(
    sweep: tuple[subprocess.Popen[str], Path], mlflow_runs: ReadMlflow, store: str
) -> None:
    started, folder = sweep
    started.kill()
    remove(folder)
    until(lambda: nothing_left(folder), "the last process to end")
    done = vinedresser("reconcile", store, cwd=folder.parent.parent)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "trial-0000   killed: its run directory was removed" in done.stdout
    assert "sweep search   killed: its folder was removed" in done.stdout
    told = mlflow_runs(folder.parent)
    assert {one["status"] for one in told.values()} == {"KILLED"}
    done = vinedresser("reconcile", "runs", cwd=folder.parent.parent)
    assert (done.returncode, done.stdout) == (0, "nothing to reconcile\n"), done.stdout
