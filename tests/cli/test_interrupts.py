"""Ctrl-C and other signals while `train` and `sweep` run: what is saved, said and left over."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.cli.terminal import Terminal
from tests.paths import SCRIPTS
from tests.waiting import until
from vinedresser.infra.catalog.state_folder import state_folder
from vinedresser.infra.services.servers import PrivatePrefect, start_private_prefect
from vinedresser.processes import marked_processes
from vinedresser.store.reading.reader import open_run

EXPERIMENT = f"""
[run]
name = "long"
command = ["python", "{SCRIPTS / "cluster_trainer.py"}"]
store = "runs"
parameters = {{ x = 0.5, epochs = 9000, pause = 0.1 }}

[rules.nonfinite]
"""
SWEEP = f"""
[sweep]
metric = "accuracy"
direction = "maximize"
pruner = "none"
sampler = "grid"

[space]
x = [0.1, 0.2, 0.3, 0.4]

[run]
name = "search"
command = ["python", "{SCRIPTS / "cluster_trainer.py"}"]
max_concurrent = 2
parameters = {{ epochs = 9000, pause = 0.1 }}

[rules.nonfinite]
"""

# A training whose checkpoint takes as long as a file exists.
SLOW = """
import sys, time
from pathlib import Path
from vinedresser.capture import Hook

held = Path(sys.argv[1])

def save(folder, steps):
    while held.exists():
        time.sleep(0.01)
    (folder / "saved").touch()

with Hook() as hook:
    hook.on_stop(save)
    while True:
        hook.step(loss=1.0)
        time.sleep(0.05)
"""

ReadMlflow = Callable[[Path], dict[str, Any]]

pytestmark = [pytest.mark.thorough, pytest.mark.timeout(300)]


@pytest.fixture
def user_server(prefect_server: PrivatePrefect, monkeypatch: pytest.MonkeyPatch) -> None:
    """Have flows use a server of the user, which outlives them."""
    for name, value in prefect_server.environment().items():
        monkeypatch.setenv(name, value)


@pytest.fixture
def marker(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """Return the mark of all processes of the test; kill those that a failed test left."""
    monkeypatch.setenv("INTERRUPTS", str(tmp_path))
    marker = f"INTERRUPTS={tmp_path}"
    yield marker
    for pid in marked_processes(marker):
        os.kill(pid, signal.SIGKILL)


def begin(command: str, folder: Path, text: str = "") -> Terminal:
    """Start a command in a terminal, and wait until it trains."""
    file = folder / f"{command}.toml"
    file.write_text(text or {"train": EXPERIMENT, "sweep": SWEEP}[command], encoding="utf-8")
    terminal = Terminal(command, file.name, cwd=folder)
    trainings = {"train": "runs/*/index/0/*", "sweep": "runs/*/*/index/0/*"}[command]
    needed = {"train": 1, "sweep": 2}[command]

    def trains() -> bool:
        assert terminal.process.poll() is None, terminal.output()
        return len({path.parents[2] for path in folder.glob(trainings)}) == needed

    until(trains, "training")
    return terminal


def flow_folders() -> list[Path]:
    """Return the folders of private servers."""
    return [*(state_folder() / "prefect").glob("flow-*")]


def assert_no_process_left(marker: str) -> None:
    until(lambda: not list(marked_processes(marker)), "the last process to end")


def assert_nothing_left(marker: str) -> None:
    """No process of the command, and nothing of its private server, is left."""
    assert_no_process_left(marker)
    assert not flow_folders()


def assert_in_order(folder: Path, marker: str, mlflow: dict[str, Any]) -> None:
    """Every run has its checkpoint, report and end, and nothing is left."""
    runs = [path.parent for path in folder.glob("runs/**/run.json")]
    for run in runs:
        status = open_run(run).status
        assert (status.state, status.by) == ("stopped", "person")
        assert list((run / "checkpoints").iterdir())
        assert (run / "report.html").is_file()
    assert {one["status"] for one in mlflow.values()} == {"KILLED"}
    assert_nothing_left(marker)


@pytest.mark.parametrize("command", ["train", pytest.param("sweep", marks=pytest.mark.slow)])
def test_ctrl_c_ends_a_flow_in_order(
    command: str, tmp_path: Path, marker: str, mlflow_runs: ReadMlflow
) -> None:
    terminal = begin(command, tmp_path)
    terminal.type("\x03")
    output = terminal.output()
    assert terminal.process.returncode == 130, output
    assert "asking the runs to stop" in output
    assert "interrupted at the keyboard" in output
    assert "report" in output.splitlines()[-1]
    for noise in ("Traceback", "rror", "prefect."):
        assert noise not in output
    assert_in_order(tmp_path, marker, mlflow_runs(tmp_path / "runs"))


def check_closed_terminal(folder: Path, marker: str, mlflow_runs: ReadMlflow) -> None:
    terminal = begin("train", folder)
    terminal.close()
    assert terminal.process.wait() == 128 + signal.SIGHUP
    assert open_run(folder / "runs" / "long").status.reason == "its terminal was closed"
    assert_in_order(folder, marker, mlflow_runs(folder / "runs"))


@pytest.mark.usefixtures("user_server")
def test_a_flow_whose_terminal_is_closed_ends_in_order(
    tmp_path: Path, marker: str, mlflow_runs: ReadMlflow
) -> None:
    check_closed_terminal(tmp_path, marker, mlflow_runs)


@pytest.mark.slow
def test_a_private_server_ends_with_a_flow_whose_terminal_is_closed(
    tmp_path: Path, marker: str, mlflow_runs: ReadMlflow
) -> None:
    check_closed_terminal(tmp_path, marker, mlflow_runs)


def test_a_second_ctrl_c_ends_a_flow_at_once(tmp_path: Path, marker: str) -> None:
    held = tmp_path / "held"
    held.touch()
    (tmp_path / "slow.py").write_text(SLOW, encoding="utf-8")
    run = f'[run]\nname = "slow"\ncommand = ["python", "slow.py", "{held}"]\nstore = "runs"\n'
    terminal = begin("train", tmp_path, run)
    terminal.type("\x03")
    until((tmp_path / "runs" / "slow" / "stop.json").exists)
    terminal.type("\x03")
    output = terminal.output()
    assert terminal.process.returncode == 130
    assert output.count("\n") < 9, output
    held.unlink()
    assert_no_process_left(marker)
    # The guard may have killed its server before that removed its files: the next one does.
    server = start_private_prefect()
    server.stop()
    assert not flow_folders()
    assert open_run(tmp_path / "runs" / "slow").status.state == "stopped"
    assert (tmp_path / "runs" / "slow" / "checkpoints" / "saved").exists()


@pytest.mark.slow
@pytest.mark.usefixtures("user_server")
def test_ctrl_c_under_a_server_of_the_user(
    tmp_path: Path, marker: str, mlflow_runs: ReadMlflow
) -> None:
    terminal = begin("train", tmp_path)
    terminal.type("\x03")
    output = terminal.output()
    assert terminal.process.returncode == 130, output
    assert "reports in runs/*/report.html" in output
    assert_in_order(tmp_path, marker, mlflow_runs(tmp_path / "runs"))
