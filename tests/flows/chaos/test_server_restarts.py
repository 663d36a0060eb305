"""`vinedresser up` after its server or worker was killed, and a server that schedules nothing."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest

from tests.flows.standing import Standing, vinedresser, write_sweep
from tests.waiting import until
from vinedresser.infra.services.servers import StandingPrefect
from vinedresser.processes import ProcessIdentity, identify, kill_group, wait_for_end
from vinedresser.store.reading.reader import open_run

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]


def kill(process: dict[str, Any]) -> None:
    """Kill a server or a worker."""
    identity = ProcessIdentity(**process)
    os.kill(identity.pid, signal.SIGKILL)
    wait_for_end(identity)
    kill_group(identity)


def begin_held_sweep(prefect: Standing, folder: Path, name: str) -> str:
    """Deploy a sweep whose trials wait and begin a run; return its id once both train."""
    write_sweep(folder).touch()
    vinedresser(folder, "deploy", "sweep.toml", "--name", name)
    flow_run = prefect.begin(f"sweep/{name}")
    until(lambda: len(list(folder.glob("runs/search-*/trial-*/index/0"))) == 2, "two trials")
    return flow_run


def settings(server: StandingPrefect) -> tuple[str, str, str]:
    """Return what clients of a server know."""
    return (server.url, server.password, server.home)


def test_a_flow_reports_its_end_though_worker_and_server_were_killed(
    prefect: Standing, tmp_path: Path
) -> None:
    prefect.checks_logs = False
    flow_run = begin_held_sweep(prefect, tmp_path, "killed-servers")
    first = prefect.server
    kill(first.worker)
    vinedresser(tmp_path, "up", "--limit", "2")
    second = prefect.server
    assert second.server == first.server
    assert second.worker != first.worker
    kill(second.server)
    vinedresser(tmp_path, "up", "--limit", "2")
    third = prefect.server
    assert third.server != first.server
    assert third.worker == second.worker
    assert settings(third) == settings(second) == settings(first)

    (tmp_path / "hold").unlink()
    prefect.await_state(flow_run, "COMPLETED")
    # The worker has reconnected.
    again = prefect.begin("sweep/killed-servers")
    prefect.await_state(again, "COMPLETED")


def test_down_ends_running_flows_in_order(
    prefect: Standing, tmp_path: Path, mlflow_runs: Callable[[Path], dict[str, Any]]
) -> None:
    prefect.checks_logs = False
    flow_run = begin_held_sweep(prefect, tmp_path, "taken-down")
    home = prefect.server.home
    vinedresser(tmp_path, "down")
    trials = [open_run(path.parent) for path in tmp_path.glob("runs/search-*/trial-*/run.json")]
    assert [run.status.state for run in trials] == ["stopped", "stopped"]
    reasons = {run.status.reason for run in trials}
    assert reasons == {"its flow was cancelled, or sent SIGTERM"}
    assert {mlflow_run["status"] for mlflow_run in mlflow_runs(tmp_path / "runs").values()} == {
        "KILLED"
    }
    vinedresser(tmp_path, "up", "--data", home, "--port", "0", "--limit", "2")
    found = prefect.call("GET", f"flow_runs/{flow_run}")["state"]
    assert (found["type"], found["message"]) == ("CANCELLED", "Stopped by `vinedresser down`.")


def test_a_run_that_died_with_the_machine_does_not_block_its_deployment(
    prefect: Standing, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    prefect.checks_logs = False
    dead = begin_held_sweep(prefect, tmp_path, "killed-machine")
    before = prefect.server
    flow = identify(int(prefect.call("GET", f"flow_runs/{dead}")["infrastructure_pid"]))
    assert flow is not None
    for process in (before.worker, before.server, asdict(flow)):
        kill(process)
    let_leases_expire(Path(before.home))
    # In a shell that has not evaluated the output of `up`.
    for name in before.environment():
        monkeypatch.delenv(name)
    said = vinedresser(tmp_path, "up", "--data", before.home, "--limit", "2")
    [swept] = tmp_path.glob("runs/search-*")
    settled = (
        f"settled after a crash in {swept}: flow run sweep sweep   crashed: its process is gone"
    )
    assert settled in said
    assert prefect.state(dead) == "CRASHED"
    assert settings(prefect.server) == settings(before)

    # The supervisors give the sweep a minute to resume.
    until(
        lambda: list(tmp_path.glob("runs/*/trial-0000/stop.json")),
        "the trial to be stopped",
        seconds=120.0,
    )
    (tmp_path / "hold").unlink()
    place = f"v2/concurrency_limits/deployment:{prefect.deployment('sweep/killed-machine')['id']}"
    until(lambda: prefect.call("GET", place)["active_slots"] == 0, "the slot to be released")
    prefect.await_state(prefect.begin("sweep/killed-machine"), "COMPLETED")
    [killed] = [path.parent.parent for path in tmp_path.glob("runs/*/trial-0000/stop.json")]
    assert open_run(killed / "trial-0000").status.by == "owner"


def let_leases_expire(home: Path) -> None:
    """Have the leases of slots end now instead of in five minutes."""
    past = "2026-01-01T00:00:00+00:00"
    leases = [*(home / "concurrency_leases").glob("*-*.json")]
    assert leases
    for lease in leases:
        content = json.loads(lease.read_bytes()) | {"expiration": past}
        lease.write_text(json.dumps(content), encoding="utf-8")
    index = home / "concurrency_leases" / "expirations.json"
    index.write_text(json.dumps({lease.stem: past for lease in leases}), encoding="utf-8")


def test_a_server_that_schedules_nothing_is_noticed(
    prefect: Standing, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    prefect.checks_logs = False
    monkeypatch.setenv("PREFECT_SERVER_SERVICES_SCHEDULER_ENABLED", "false")
    kill(prefect.server.server)
    try:
        said = vinedresser(tmp_path, "up", "--limit", "2", code=2)
        url, log = prefect.server.url, prefect.server.server_log
        assert (
            f"Prefect's server at {url} runs deployments only on request, not on schedule" in said
        )
        assert f"see the errors in {log}" in said
        assert f"export PREFECT_API_URL={url}/api" in said
        write_sweep(tmp_path)
        words = ("deploy", "sweep.toml", "--name", "unscheduled")
        said = vinedresser(tmp_path, *words, "--cron", "0 2 * * *", code=2)
        assert "sweep/unscheduled is deployed, but" in said
        assert f"see the errors in {log}" in said
        # What needs no scheduler is done.
        vinedresser(tmp_path, *words)
        prefect.await_state(prefect.begin("sweep/unscheduled"), "COMPLETED")
    finally:
        monkeypatch.delenv("PREFECT_SERVER_SERVICES_SCHEDULER_ENABLED")
        kill(prefect.server.server)
        vinedresser(tmp_path, "up", "--limit", "2")
