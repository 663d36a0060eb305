"""A deployed monitor on a real Prefect server: alarm, event, automation, explanation."""

from __future__ import annotations

import os
import re
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.flows.standing import Standing, program, vinedresser
from tests.flows.test_monitor_flow import service
from tests.waiting import until

pytestmark = pytest.mark.timeout(900)

Runs = Callable[[Path], dict[str, Any]]


def deployed(folder: Path) -> Path:
    """Deploy the example's monitor, whose model is trained; return the folder of explanations."""
    vinedresser(folder, "init", "monitor")
    with service(folder):
        said = vinedresser(folder, "deploy", "monitor.toml")
    assert "deployed monitor/digits on the work pool vinedresser, on request" in said
    return folder / "monitors" / "digits" / "life-1" / "explanations"


# Flow runs as those of a deployment, which leave explanations to an automation.
EMITS = """
from pathlib import Path

from tests.tasks.monitoring.lives import record, write_monitor
from vinedresser.flows.monitor import monitor

here = Path.cwd()
path = write_monitor(here)
for requests, shift in ((0, 0.0), (20, 0.0), (300, 0.0), (300, 9.0)):
    record(here, requests, shift=shift, seed=requests + int(shift))
    print("answer:", monitor(path, emits=True, return_state=True).name)
"""


@pytest.mark.thorough
def test_each_other_answer_is_an_event(
    prefect: Standing,
    tmp_path: Path,
    mlflow_store: Callable[[Path], Path],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Also that nothing can be told; and none as long as the answer is the same."""
    monkeypatch.setenv("PYTHONPATH", f"{tmp_path}{os.pathsep}{os.getcwd()}")
    (tmp_path / "emits.py").write_text(EMITS, encoding="utf-8")
    mlflow_store(tmp_path / "monitors")
    output = program(tmp_path, "emits")
    assert re.findall(r"^answer: (.*)$", output, re.MULTILINE) == [
        "Cannot tell",
        "Cannot tell",
        "No drift seen",
        "Drift",
    ]
    wanted = {"event": {"prefix": ["vinedresser."]}, "order": "ASC"}

    def found() -> list[tuple[str, str, str]]:
        events = prefect.call("POST", "events/filter", {"filter": wanted})["events"]
        return [
            (event["event"], event["payload"]["answer"], event["payload"]["text"])
            for event in events
            if event["resource"]["prefect.resource.name"] == "small"
        ]

    # The server keeps events some time after it has received them.
    until(lambda: "vinedresser.drift" in [event for event, *_ in found()], "the last event")
    kinds, said, texts = zip(*found(), strict=True)
    assert kinds == (
        "vinedresser.monitor.cannot-tell",
        "vinedresser.monitor.no-drift-seen",
        "vinedresser.monitor.drift",
        "vinedresser.drift",
    )
    assert said == ("cannot tell", "no drift seen", "drift", "drift")
    for answer, text in zip(said, texts, strict=True):
        assert answer in text


@pytest.mark.slow
def test_an_alarm_is_explained_by_an_automation(
    prefect: Standing, tmp_path: Path, mlflow_runs: Runs
) -> None:
    explanations = deployed(tmp_path)
    with service(tmp_path, "--shift"):
        flow_run = prefect.begin("monitor/digits")
        prefect.await_state(flow_run, "COMPLETED")
        assert prefect.call("GET", f"flow_runs/{flow_run}")["state"]["name"] == "Drift"
        until(lambda: prefect.runs("explain/digits"), "the automation's flow run")
        [run] = prefect.runs("explain/digits")
        prefect.await_state(run["id"], "COMPLETED")
        assert len([*explanations.glob("*/explain.html")]) == 1
        # The same alert again: no event, no run, no explanation.
        prefect.await_state(prefect.begin("monitor/digits"), "COMPLETED")
    assert len(prefect.runs("explain/digits")) == 1
    assert len(mlflow_runs(tmp_path / "monitors")) == 2


@pytest.mark.slow
def test_an_alert_whose_event_was_lost_is_explained_later(
    prefect: Standing, tmp_path: Path, mlflow_runs: Runs
) -> None:
    prefect.checks_logs = False
    explanations = deployed(tmp_path)
    with service(tmp_path, "--shift"):
        flow_run = prefect.begin("monitor/digits")
        alerts = explanations.parent / "alerts"
        until(lambda: [*alerts.glob("*.json")], "the alert", seconds=300.0)
        # The alert is on disk; whatever the server knows of it dies with it.
        os.kill(prefect.server.server["pid"], signal.SIGKILL)
        vinedresser(tmp_path, "up", "--limit", "2")
        until(lambda: prefect.state(flow_run) in ("COMPLETED", "FAILED", "CRASHED"), "the end")
        for _ in range(2):
            # Prefect's client tries again while the new server is busy.
            program(tmp_path, *("prefect", "deployment", "run", "monitor/digits", "--watch"))
        until(lambda: [*explanations.glob("*/explain.html")], "the explanation", seconds=300.0)
        for run in prefect.runs("explain/digits"):
            prefect.await_state(run["id"], "COMPLETED")
    assert len(mlflow_runs(tmp_path / "monitors")) == 2
