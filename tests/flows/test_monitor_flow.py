"""`vinedresser monitor` for real: a service in a process of its own, Prefect, MLflow, saliency."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.flows.standing import vinedresser
from tests.tasks.monitoring.lives import record, write_monitor
from tests.waiting import until

pytestmark = [pytest.mark.timeout(600), pytest.mark.thorough]

Runs = Callable[[Path], dict[str, Any]]


@contextmanager
def service(folder: Path, *words: str) -> Iterator[None]:
    """Have the example's service answer requests; afterwards it waits for an alarm."""
    argv = [sys.executable, "service.py", "--wait", "500", *words]
    with subprocess.Popen(argv, cwd=folder, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert "answered" in process.stdout.readline()
        try:
            yield
        finally:
            process.terminate()


def test_a_drift_is_explained_by_itself_and_once(tmp_path: Path, mlflow_runs: Runs) -> None:
    vinedresser(tmp_path, "init", "monitor")
    state = tmp_path / "monitors"
    with service(tmp_path):
        said = vinedresser(tmp_path, "monitor", "monitor.toml")
    assert "no drift" in said
    assert [*mlflow_runs(state)] == ["digits"]
    # Enough for a window on a machine so busy that most requests are not recorded.
    with service(tmp_path, "--shift", "--requests", "4000"):
        said = vinedresser(tmp_path, "monitor", "monitor.toml", code=1)
        assert "drift since window" in said
        vinedresser(tmp_path, "monitor", "monitor.toml", code=1)
        runs = mlflow_runs(state)
        [name] = [one for one in runs if one != "digits"]
        monitor, explanation = runs["digits"], runs[name]
        assert name.startswith("digits: alert at window")
        assert explanation["status"] == "FINISHED"
        assert {"explain.html", "figures.json", "sheet.png"} <= {*explanation["files"]}
        assert explanation["tags"]["mlflow.parentRunId"] == monitor["id"]
        assert monitor["tags"]["explanation.run_id"] == explanation["id"]
        assert monitor["tags"]["alert.id"] == explanation["tags"]["alert.id"]
        assert "monitor.html" in monitor["files"]
        [figures] = [
            json.loads(path.read_text())
            for path in state.glob("digits/life-1/explan*/*/figures.json")
        ]
        assert figures["complete"]
        assert figures["requests"] == 100
        # By hand, any window whose inputs the service still has.
        last = len([*state.glob("digits/life-1/windows/*.json")]) - 1
        said = vinedresser(tmp_path, "explain", "monitor.toml", "--window", str(last))
        assert f"digits, window {last}: " in said
    assert len(mlflow_runs(state)) == 3
    said = vinedresser(tmp_path, "explain", "monitor.toml", "--window", "99", code=2)
    assert "life-1: no window 99" in said


@pytest.mark.slow
def test_another_life_has_another_run_and_settings_are_fixed_in_a_life(
    tmp_path: Path, mlflow_runs: Runs, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYTHONPATH", os.getcwd())
    write_monitor(tmp_path)
    record(tmp_path, 100)
    assert "2 windows judged" in vinedresser(tmp_path, "monitor", "monitor.toml")
    path = write_monitor(tmp_path, "[alarm]\nbudget = 0.05\n")
    said = vinedresser(tmp_path, "monitor", "monitor.toml", code=2)
    assert f"{path.name}: differs from the monitor in " in said
    assert "alarm.budget: was 0.01, is 0.05" in said
    record(tmp_path, 60, seed=2)
    # What the first life has judged is past.
    said = vinedresser(tmp_path, "monitor", "monitor.toml", "--rearm")
    assert "1 window judged" in said
    runs = mlflow_runs(tmp_path / "monitors")
    assert {name: run["status"] for name, run in runs.items()} == {
        "small": "FINISHED",
        "small (life 2)": "RUNNING",
    }
    assert runs["small"]["params"]["alarm.budget"] == "0.01"


def test_a_killed_monitor_judges_the_rest_and_tells_all(
    tmp_path: Path, mlflow_runs: Runs, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYTHONPATH", os.getcwd())
    write_monitor(tmp_path)
    record(tmp_path, 6000)
    windows = tmp_path / "monitors" / "small" / "life-1" / "windows"
    argv = [sys.executable, "-m", "vinedresser", "monitor", "monitor.toml"]
    with subprocess.Popen(argv, cwd=tmp_path) as process:
        until((windows / "000003.json").exists, "a window")
        process.send_signal(signal.SIGKILL)
    before = len([*windows.glob("*.json")])
    assert before < 120
    vinedresser(tmp_path, "monitor", "monitor.toml")
    assert len([*windows.glob("*.json")]) == 120
    metrics = mlflow_runs(tmp_path / "monitors")["small"]["metrics"]
    assert any("evidence" in name for name in metrics)


@pytest.mark.slow
def test_a_model_that_fails_is_named_and_the_windows_are_judged(tmp_path: Path) -> None:
    vinedresser(tmp_path, "init", "monitor")
    with service(tmp_path):
        vinedresser(tmp_path, "monitor", "monitor.toml")
    (tmp_path / "model.safetensors").rename(tmp_path / "other.safetensors")
    said = vinedresser(tmp_path, "monitor", "monitor.toml", code=2)
    assert f"model.weights: {tmp_path / 'model.safetensors'}: no such file" in said
    (tmp_path / "model.safetensors").write_bytes(b"damaged")
    said = vinedresser(tmp_path, "monitor", "monitor.toml", "--rearm", code=2)
    assert "the baseline could not be made: " in said
    assert "model.safetensors: not a readable safetensors file" in said
