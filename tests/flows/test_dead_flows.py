"""Flow runs whose process was killed, on a Prefect server that outlives it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import psutil
import pytest

from tests.flows.standing import Standing, vinedresser
from tests.paths import SCRIPTS
from tests.tasks.monitoring.lives import record, write_monitor
from tests.waiting import until
from vinedresser.infra.catalog.flow_records import FlowRecord, dead_flows
from vinedresser.infra.catalog.stores import private_state
from vinedresser.objects import LocalStorage
from vinedresser.processes import this_process
from vinedresser.store.reading.reader import open_run
from vinedresser.store.records import write_record
from vinedresser.tasks.reconcile.reconcile import reconcile

SUPERVISOR = "vinedresser.infra.supervise.supervisor.server"
EXPERIMENT = f"""
[run]
name = "{{name}}"
command = ["python", "{SCRIPTS / "cluster_trainer.py"}"]
store = "runs"
parameters = {{{{ x = 0.5, epochs = {{epochs}}, pause = 0.1 }}}}
"""


def test_the_note_on_a_dead_flow_is_kept_for_the_server_that_it_names(tmp_path: Path) -> None:
    ids = ["0" * 32, "1" * 32]
    for name, server in zip(ids, ["", "http://127.0.0.1:1/api"], strict=True):
        gone = asdict(replace(this_process(), started=0))
        note = FlowRecord(name, "train", "", gone, server)
        write_record(LocalStorage(private_state(tmp_path)), note, key=f"flows/{name}.json")
    for prefect in (False, True, True):
        assert reconcile(tmp_path, prefect=prefect) == []
        # The private server of the other has ended with its flow.
        assert [flow.id for flow in dead_flows(tmp_path, [])] == [ids[1]]


@pytest.mark.thorough
@pytest.mark.timeout(600)
def test_up_settles_what_a_killed_flow_and_its_supervisor_left(
    prefect: Standing,
    tmp_path: Path,
    mlflow_store: Callable[[Path], Path],
    mlflow_runs: Callable[[Path], dict[str, Any]],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    store = mlflow_store(tmp_path / "runs")
    text = EXPERIMENT.format(name="left", epochs=9000)
    (tmp_path / "left.toml").write_text(text, encoding="utf-8")
    command = [sys.executable, "-m", "vinedresser", "train", "left.toml"]
    with subprocess.Popen(command, cwd=tmp_path) as flow:
        try:
            until(lambda: list(store.glob("left/index/0/*.json")), "training")
            [dead] = prefect.call(
                "POST", "flow_runs/filter", {"flow_runs": {"name": {"any_": ["train left"]}}}
            )
            # None of them may settle what the end of the other leaves.
            process = psutil.Process(flow.pid)
            process.suspend()
            children = process.children(recursive=True)
            supervisors = [child for child in children if SUPERVISOR in child.cmdline()]
            assert supervisors
            for supervisor in supervisors:
                supervisor.kill()
        finally:
            flow.kill()
    assert mlflow_runs(store)["left"]["status"] == "RUNNING"
    # In a shell that has not evaluated the output of `up`.
    for name in prefect.server.environment():
        monkeypatch.delenv(name)
    said = vinedresser(tmp_path, "up", "--limit", "2")
    settled = f"settled after a crash in {store}: "
    assert f"{settled}flow run train left   crashed: its process is gone" in said
    assert f"{settled}left   " in said
    assert prefect.state(dead["id"]) == "CRASHED"
    assert open_run(store / "left").status.state == "killed"
    assert mlflow_runs(store)["left"]["status"] == "KILLED"
    assert str(store) not in vinedresser(tmp_path, "up", "--limit", "2")


# The gate kills one that judges in tests/tasks/monitoring/test_judging_windows.py.
@pytest.mark.slow
@pytest.mark.timeout(600)
def test_up_settles_a_killed_monitor_which_then_judges_the_rest(
    prefect: Standing,
    tmp_path: Path,
    mlflow_runs: Callable[[Path], dict[str, Any]],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("PYTHONPATH", os.getcwd())
    write_monitor(tmp_path)
    record(tmp_path, 6000)
    state = tmp_path / "monitors/small"
    command = [sys.executable, "-m", "vinedresser", "monitor", "monitor.toml"]
    with subprocess.Popen(command, cwd=tmp_path) as flow:
        until((state / "life-1/windows/000003.json").exists, "a window")
        flow.kill()
    [dead] = prefect.call(
        "POST", "flow_runs/filter", {"flow_runs": {"name": {"any_": ["monitor monitor"]}}}
    )
    assert prefect.state(dead["id"]) == "RUNNING"
    said = vinedresser(tmp_path, "up", "--limit", "2")
    assert (
        f"settled after a crash in {state}: flow run monitor monitor   crashed: its process is gone"
    ) in said
    assert prefect.state(dead["id"]) == "CRASHED"
    # It ends as before, judges the rest, tells all, and leaves nothing to settle.
    assert len([*state.glob("life-1/windows/*.json")]) < 120
    vinedresser(tmp_path, "monitor", "monitor.toml")
    assert len([*state.glob("life-1/windows/*.json")]) == 120
    metrics = mlflow_runs(tmp_path / "monitors")["small"]["metrics"]
    assert any("evidence" in name for name in metrics)
    assert str(state) not in vinedresser(tmp_path, "up", "--limit", "2")


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_a_flow_with_its_own_server_leaves_a_dead_flow_of_the_standing_one_to_reconcile(
    prefect: Standing, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, epochs in (("long", 9000), ("short", 1)):
        text = EXPERIMENT.format(name=name, epochs=epochs)
        (tmp_path / f"{name}.toml").write_text(text, encoding="utf-8")
    command = [sys.executable, "-m", "vinedresser", "train", "long.toml"]
    with subprocess.Popen(command, cwd=tmp_path) as flow:
        until(lambda: list(tmp_path.glob("runs/long/index/0/*.json")), "training")
        [dead] = [
            one["id"]
            for one in prefect.call("POST", "flow_runs/filter", {})
            if one["name"] == "train long"
        ]
        os.kill(flow.pid, signal.SIGKILL)
    until((tmp_path / "runs/long/exit.json").exists, "the end of the training")
    for name in prefect.server.environment():
        monkeypatch.delenv(name)
    vinedresser(tmp_path, "train", "short.toml")
    assert prefect.state(dead) == "RUNNING"
    assert "flow run train long   crashed: its process is gone" in vinedresser(
        tmp_path, "reconcile", "runs"
    )
    assert prefect.state(dead) == "CRASHED"
    assert "nothing to reconcile" in vinedresser(tmp_path, "reconcile", "runs")
