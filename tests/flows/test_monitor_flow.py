"""`vinedresser monitor` for real: a service in a process of its own, Prefect, MLflow, saliency."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.flows.changing_files import invalid_once_read
from tests.flows.standing import vinedresser
from tests.tasks.monitoring.lives import record, write_monitor
from tests.warm_python import TORCH

pytestmark = [
    pytest.mark.timeout(600),
    pytest.mark.thorough,
    pytest.mark.usefixtures("shared_prefect"),
]

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


def test_a_drift_is_explained_by_itself_and_once(
    tmp_path: Path, mlflow_runs: Runs, monkeypatch: pytest.MonkeyPatch
) -> None:
    vinedresser(tmp_path, "init", "monitor")
    state = tmp_path / "monitors"
    # It may have ended: inputs are asked for only after an alarm.
    done = TORCH.run(["service.py", "--requests", "60"], tmp_path, os.environ)
    assert done.returncode == 0, done.stderr
    with monkeypatch.context() as patch:
        patch.setenv("VINEDRESSER_LOG_FORMAT", "json")
        said = vinedresser(tmp_path, "monitor", "monitor.toml", code=4)
    [answer] = [one for one in map(json.loads, said.splitlines()) if "answer" in one]
    assert (answer["monitor"], answer["windows"]) == ("digits", 0)
    assert (answer["answer"], answer["level"]) == ("cannot tell", "warning")
    assert "60 requests came, 60 recorded, 0 judged" in said
    assert re.search("cannot tell.* 60 of the 100 requests", said)
    page = state / "digits" / "life-1" / "monitor.html"
    text = page.read_text()
    assert '<body class="doubtful">' in text
    # Numbers and reasons once.
    assert text.count("60 requests came") == text.count("of the 100 requests") == 1
    [monitor] = mlflow_runs(state).values()
    assert monitor["tags"]["monitor.answer"] == "cannot tell"
    assert monitor["tags"]["requests.came"] == "60"
    assert not any("alarm" in name for name in monitor["metrics"])
    # Enough for a window on a machine so busy that most requests are not recorded.
    with service(tmp_path, "--shift", "--requests", "4000"):
        with invalid_once_read(tmp_path / "monitor.toml"):
            said = vinedresser(tmp_path, "monitor", "monitor.toml", code=1)
        assert "drift since window" in said
        vinedresser(tmp_path, "monitor", "monitor.toml", code=1)
        runs = mlflow_runs(state)
        [name] = [run for run in runs if run != "digits"]
        monitor, explanation = runs["digits"], runs[name]
        assert name.startswith("digits: alert at window")
        assert explanation["status"] == "FINISHED"
        assert {"explain.html", "figures.json", "sheet.png"} <= {*explanation["files"]}
        assert explanation["tags"]["mlflow.parentRunId"] == monitor["id"]
        assert monitor["tags"]["explanation.run_id"] == explanation["id"]
        assert monitor["tags"]["alert.id"] == explanation["tags"]["alert.id"]
        assert "monitor.html" in monitor["files"]
        assert monitor["tags"]["monitor.answer"] == "drift"
        assert monitor["tags"]["mlflow.note.content"] in said
        assert '<body class="stopped">' in page.read_text()
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


@pytest.mark.slow
def test_another_life_has_another_run_and_settings_are_fixed_in_a_life(
    tmp_path: Path, mlflow_runs: Runs, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYTHONPATH", os.getcwd())
    write_monitor(tmp_path)
    record(tmp_path, 100)
    said = vinedresser(tmp_path, "monitor", "monitor.toml")
    assert "2 new windows judged" in said
    assert "100 requests came, 100 recorded, 100 judged" in said
    said = vinedresser(tmp_path, "explain", "monitor.toml", "--window", "99", code=2)
    assert "life-1: no window 99" in said
    path = write_monitor(tmp_path, "[alarm]\nbudget = 0.05\n")
    said = vinedresser(tmp_path, "monitor", "monitor.toml", code=2)
    assert f"{path.name}: differs from the monitor in " in said
    assert "alarm.budget: was 0.01, is 0.05" in said
    record(tmp_path, 60, seed=2)
    # What the first life has judged is past, and one window is too little for an answer.
    said = vinedresser(tmp_path, "monitor", "monitor.toml", "--rearm", code=4)
    assert "1 new window judged" in said
    assert re.search(r"cannot tell.* x0, x1, x2: .*\(50\)", said)
    runs = mlflow_runs(tmp_path / "monitors")
    assert {name: run["status"] for name, run in runs.items()} == {
        "small": "FINISHED",
        "small (life 2)": "RUNNING",
    }
    assert runs["small"]["params"]["alarm.budget"] == "0.01"
    text = path.read_text()
    path.write_text(text.replace("[window]", "in_time_order = false\n\n[window]"))
    record(tmp_path, 200, seed=3)
    said = vinedresser(tmp_path, "monitor", "monitor.toml", "--rearm", code=4)
    assert "cannot tell, because x0, x1, x2" in said
    assert "the baseline is not in time order" in said
    life = tmp_path / "monitors" / "small" / "life-3"
    assert '<body class="doubtful">' in (life / "monitor.html").read_text()
    tags = mlflow_runs(tmp_path / "monitors")["small (life 3)"]["tags"]
    assert tags["monitor.answer"] == "cannot tell"
    assert "the baseline is not in time order" in tags["monitor.reasons"]


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
