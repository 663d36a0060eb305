"""Run directories that are removed while their runs train, with and without a living flow."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.cli.command_line import vinedresser
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

ReadMlflow = Callable[[Path], dict[str, Any]]

pytestmark = [pytest.mark.thorough, pytest.mark.timeout(300)]


@pytest.fixture
def flow(
    tmp_path: Path, mlflow_store: Callable[[Path], Path]
) -> Iterator[tuple[subprocess.Popen[str], Path]]:
    """Return a flow whose only run trains, and the run's directory."""
    store = mlflow_store(tmp_path / "runs")
    (tmp_path / "experiment.toml").write_text(EXPERIMENT, encoding="utf-8")
    started = subprocess.Popen(
        [sys.executable, "-m", "vinedresser", "train", "experiment.toml"],
        cwd=tmp_path,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        env={**os.environ, "COLUMNS": "200", "REMOVED": str(tmp_path)},
        start_new_session=True,
    )
    run = store / "one"
    until(lambda: list(run.glob("index/0/*.json")), "training")
    yield started, run
    for pid in marked_processes(f"REMOVED={tmp_path}"):
        os.kill(pid, signal.SIGKILL)
    started.communicate()


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
    assert not run.exists()
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
