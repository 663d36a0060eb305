"""A deployed monitor on a real Prefect server: alarm, event, automation, explanation."""

from __future__ import annotations

import os
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
