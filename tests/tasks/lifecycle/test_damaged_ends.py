"""A training that damages the records of its own run while a flow supervises it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.cli.command_line import vinedresser

SCRIPT = """
import os, sys
from pathlib import Path
from vinedresser.capture import Hook

with Hook() as hook:
    hook.step(loss=1.0)
    Path(os.environ["VINEDRESSER_RUN"], sys.argv[2]).write_bytes(b"{")
"""
EXPERIMENT = """
[run]
name = "run"
command = ["python", "train.py"]
store = "runs"

[variants.exit.parameters]
damage = "exit.json"
[variants.tracking.parameters]
damage = "tracking.json"
[variants.launch.parameters]
damage = "launch.json"
"""


@pytest.mark.thorough
@pytest.mark.timeout(300)
@pytest.mark.usefixtures("shared_prefect")
def test_a_flow_settles_runs_whose_training_damages_their_records(
    tmp_path: Path,
    mlflow_store: Callable[[Path], Path],
    mlflow_runs: Callable[[Path], dict[str, Any]],
) -> None:
    store = mlflow_store(tmp_path / "runs")
    (tmp_path / "train.py").write_text(SCRIPT)
    (tmp_path / "experiment.toml").write_text(EXPERIMENT)
    done = vinedresser("train", "experiment.toml", cwd=tmp_path)
    assert "Traceback" not in done.stdout + done.stderr
    assert [line for line in done.stdout.splitlines() if line.startswith("vinedresser: ")] == []
    told = mlflow_runs(store)
    assert {name: one["status"] for name, one in told.items()} == {
        "run-exit": "KILLED",
        "run-tracking": "FINISHED",
        "run-launch": "FINISHED",
    }
    for name in ("exit", "tracking"):
        assert f"{name}.json: not a valid" in told[f"run-{name}"]["tags"]["problems"]
        assert (store / f"run-{name}" / f"{name}.json").read_bytes() == b"{"
    done = vinedresser("reconcile", "runs", cwd=tmp_path)
    assert (done.returncode, done.stdout) == (0, "nothing to reconcile\n"), done.stdout
