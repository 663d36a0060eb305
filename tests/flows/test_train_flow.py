"""Flow `train` for real: Prefect's embedded server, an MLflow database, real trainings."""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from tests.flows.changing_files import invalid_once_read
from tests.paths import ROOT
from tests.waiting import until
from tests.warm_python import COMMANDS
from vinedresser.explain.verdicts import verdict
from vinedresser.rules.judge import judge
from vinedresser.rules.registry import rules_from_table
from vinedresser.store.reading.reader import open_run

SCRIPT = ROOT / "examples" / "digits" / "train.py"

EXPERIMENT = f"""
[run]
name = "digits"
command = ["python", "{SCRIPT}"]
store = "runs"
total_steps = 400
max_concurrent = 2
parameters = {{ model = "mlp", steps = 400 }}

[variants.healthy]
parameters = {{ lr = 0.05 }}

[variants.nan]
parameters = {{ naive-loss = true, scale = 1.0, lr = 0.05, steps = 100000 }}
total_steps = 100000

[variants.crash]
parameters = {{ model = "transformer" }}
"""

pytestmark = pytest.mark.timeout(300)


def lock_mlflow_until_healthy_has_ended(store: Path) -> None:
    """Keep MLflow's database to ourselves while the healthy training goes on."""
    healthy = store / "digits-healthy"
    until(lambda: list(healthy.glob("index/0/*.json")))
    with closing(sqlite3.connect(store / "mlflow.db", timeout=60, isolation_level=None)) as lock:
        lock.execute("BEGIN EXCLUSIVE")
        until((healthy / "exit.json").exists)


@pytest.mark.thorough
def test_runs_are_judged_stopped_and_recorded(
    tmp_path: Path,
    mlflow_store: Callable[[Path], Path],
    mlflow_runs: Callable[[Path], dict[str, Any]],
) -> None:
    (tmp_path / "experiment.toml").write_text(EXPERIMENT, encoding="utf-8")
    store = mlflow_store(tmp_path / "runs")
    damaged = store / f"\x1b[2J hf_{'a' * 32}"
    damaged.mkdir()
    (damaged / "run.json").write_text("{")
    (damaged / "tracking.json").write_text("{")
    words = ["-m", "vinedresser", "train", "experiment.toml"]
    environment = {**os.environ, "COLUMNS": "200"}
    with (
        invalid_once_read(tmp_path / "experiment.toml"),
        COMMANDS.running(words, tmp_path, environment) as flow,
    ):
        lock_mlflow_until_healthy_has_ended(store)
        done = flow.result()
    output = done.stdout + done.stderr
    assert done.returncode == 1, output  # one of them crashed
    assert "digits-healthy" in output
    # By Prefect's handler.
    assert r"| vinedresser.tasks.reconcile.reconcile - \x1b[2J ***: left alone" in output
    assert "\x1b[2J" not in output
    healthy, nan, crash = (
        open_run(store / f"digits-{name}") for name in ("healthy", "nan", "crash")
    )

    assert healthy.status.state == "finished"
    assert healthy.findings() == []
    assert list(healthy.steps("train")) == list(range(400))

    assert (nan.status.state, nan.status.by, nan.status.rule) == ("stopped", "rule", "nonfinite")
    assert nan.status.step is not None
    assert nan.status.step < 50_000
    assert list((store / "digits-nan" / "checkpoints").iterdir())
    # The same rules on the finished run find the same.
    rules = rules_from_table({rule: {} for rule in ("nonfinite", "loss_not_decreasing")})
    again = judge(nan, rules, live=False, on_finding=lambda _: None)
    assert [f for f in nan.findings() if f.rule in ("nonfinite", "loss_not_decreasing")] == again

    assert crash.status.state == "crashed"
    assert "transformer" in (store / "digits-crash" / "log.txt").read_text(encoding="utf-8")

    recorded = mlflow_runs(store)
    assert {name: entry["status"] for name, entry in recorded.items()} == {
        "digits-healthy": "FINISHED",
        "digits-nan": "KILLED",
        "digits-crash": "FAILED",
    }
    tags = recorded["digits-nan"]["tags"]
    assert int(tags["stop.step"]) == again[0].step
    # Its cause, which is found only later if the training goes on for long.
    told = verdict(nan).status
    assert (tags["stop.rule"], tags["stop.reason"]) == (told.rule, told.reason)
    assert recorded["digits-healthy"]["steps"] == list(range(400))
    assert recorded["digits-healthy"]["params"] == {"lr": "0.05", "model": "mlp", "steps": "400"}
    assert "report.html" in recorded["digits-healthy"]["files"]
    assert "findings" in recorded["digits-nan"]["files"]
    assert (store / "digits-nan" / "report.html").is_file()
