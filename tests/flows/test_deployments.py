"""`vinedresser deploy` on a real Prefect server with a worker: run, once at a time, cancelled."""

from __future__ import annotations

import base64
import json
import os
import subprocess
import sys
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.paths import ROOT, SCRIPTS
from tests.waiting import until
from vinedresser.infra.servers import StandingPrefect, bring_up_prefect, take_down_prefect
from vinedresser.processes import ProcessIdentity, is_alive, marked_processes
from vinedresser.store.reading.reader import open_run
from vinedresser.store.records import RUN_ID_VARIABLE
from vinedresser.tasks.config.sweep_file import load_sweep
from vinedresser.tasks.sweeping.sweep_result import has_begun

SWEEP = f"""
[sweep]
metric = "accuracy"
direction = "maximize"
epochs = 400
pruner = "none"
sampler = "grid"

[space]
x = [0.1, 0.2, 0.3, 0.4]

[run]
name = "search"
command = ["python", "{SCRIPTS / "cluster_trainer.py"}"]
max_concurrent = 2
parameters = {{ epochs = 400, pause = 0.2 }}

[rules.nonfinite]
"""

pytestmark = pytest.mark.timeout(600)

Call = Callable[..., Any]


def vinedresser(folder: Path, *words: str, code: int = 0) -> str:
    """Run the command line; return what it printed."""
    done = subprocess.run(
        [sys.executable, "-m", "vinedresser", *words],
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "COLUMNS": "200"},
    )
    assert done.returncode == code, done.stdout + done.stderr
    return done.stdout + done.stderr


@pytest.mark.thorough
def test_what_is_wrong_is_said_before_prefect_is_asked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    (tmp_path / "sweep.toml").write_text(SWEEP, encoding="utf-8")
    said = vinedresser(tmp_path, "deploy", "sweep.toml", code=2)
    assert "no Prefect server configured: start one on this machine with `vinedresser up`" in said
    said = vinedresser(tmp_path, "deploy", "sweep.toml", "--paused", code=2)
    assert "--timezone, --paused: require --cron" in said
    monkeypatch.setenv("PREFECT_API_URL", "http://127.0.0.1:9/api")
    said = vinedresser(tmp_path, "deploy", "sweep.toml", "--cron", "at two", code=2)
    assert "cron 'at two': " in said
    (tmp_path / "sweep.toml").write_text(SWEEP.replace("metric", "metrik"), encoding="utf-8")
    said = vinedresser(tmp_path, "deploy", "sweep.toml", code=2)
    assert "sweep.toml: sweep.metrik: no such key; did you mean metric" in said


def test_each_time_makes_a_sweep_of_its_own_in_one_experiment(tmp_path: Path) -> None:
    (tmp_path / "sweep.toml").write_text(SWEEP, encoding="utf-8")
    swept = load_sweep(tmp_path / "sweep.toml", mark="20261121T020000Z")
    assert swept.name == "search-20261121T020000Z"
    assert swept.experiment.store == tmp_path / "runs" / swept.name
    assert swept.experiment.tracking_experiment == "search"
    assert not has_begun(swept)


@pytest.fixture(scope="module")
def prefect(tmp_path_factory: pytest.TempPathFactory) -> Iterator[StandingPrefect]:
    """Return a standing server with a worker, of a home of their own, which programs find."""
    home = tmp_path_factory.mktemp("prefect")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_STATE_HOME", str(home / "state"))
        standing = bring_up_prefect(home / "data", port=0, limit=2)
        try:
            for name, value in standing.environment().items():
                patch.setenv(name, value)
            yield standing
        finally:
            take_down_prefect()
    assert not is_alive(ProcessIdentity(**standing.worker))
    assert not is_alive(ProcessIdentity(**standing.server))


@pytest.fixture
def call(prefect: StandingPrefect) -> Call:
    """Return a function that asks Prefect's API."""
    credentials = base64.b64encode(prefect.password.encode()).decode()

    def ask(method: str, path: str, body: object = None) -> Any:
        request = urllib.request.Request(
            f"{prefect.url}/api/{path}",
            data=None if body is None else json.dumps(body).encode(),
            method=method,
            headers={"Authorization": f"Basic {credentials}", "Content-Type": "application/json"},
        )
        with urllib.request.urlopen(request) as answer:
            return json.loads(answer.read())

    return ask


def begin(call: Call, deployment: str) -> str:
    """Ask for a run of a deployment; return the flow run's id."""
    body = {"state": {"type": "SCHEDULED"}}
    made: str = call("POST", f"deployments/{deployment}/create_flow_run", body)["id"]
    return made


def state(call: Call, flow_run: str) -> str:
    said: str = call("GET", f"flow_runs/{flow_run}")["state"]["type"]
    return said


@pytest.mark.slow
def test_a_cancelled_sweep_leaves_checkpoints_and_no_process(
    prefect: StandingPrefect, call: Call, tmp_path: Path, mlflow_runs: Callable[[Path], Any]
) -> None:
    (tmp_path / "sweep.toml").write_text(SWEEP, encoding="utf-8")
    said = vinedresser(tmp_path, "deploy", "sweep.toml", "--cron", "0 2 * * *")
    assert "deployed sweep/search on the work pool vinedresser, at 0 2 * * *, UTC" in said
    deployed = call("GET", "deployments/name/sweep/search")
    assert deployed["parameters"] == {"path": str(tmp_path / "sweep.toml"), "dated": True}
    assert [entry["schedule"]["cron"] for entry in deployed["schedules"]] == ["0 2 * * *"]

    flow_run = begin(call, deployed["id"])
    store = tmp_path / "runs"
    until(lambda: list(store.glob("search-*/trial-*/index/0/*")), "a trial to train")
    # A second one at the same time is not run.
    other = begin(call, deployed["id"])
    until(lambda: state(call, other) == "CANCELLED", "the end of the second one")

    call("POST", f"flow_runs/{flow_run}/set_state", {"state": {"type": "CANCELLING"}})
    until(lambda: state(call, flow_run) == "CANCELLED", "the end of the cancelled one")
    trials = [path.parent for path in store.glob("search-*/trial-*/run.json")]
    assert len(trials) == 2
    for trial in trials:
        run = open_run(trial)
        assert (run.status.state, run.status.by) == ("stopped", "person")
        assert run.status.reason == "its flow was cancelled, or sent SIGTERM"
        assert list((trial / "checkpoints").iterdir())
        assert not list(marked_processes(f"{RUN_ID_VARIABLE}={run.info.id}"))
    runs = mlflow_runs(store)
    assert {one["status"] for one in runs.values()} == {"KILLED"}
    # Whoever deploys it anew changes it.
    said = vinedresser(
        tmp_path, *("deploy", "sweep.toml", "--cron", "0 3 * * *", "--paused"), "--name", "search"
    )
    assert "(paused)" in said
    schedules = call("GET", "deployments/name/sweep/search")["schedules"]
    assert [(one["schedule"]["cron"], one["active"]) for one in schedules] == [("0 3 * * *", False)]


@pytest.mark.slow
def test_the_shipped_deployments_can_be_deployed(prefect: StandingPrefect, call: Call) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "prefect", "--no-prompt", "deploy", "--all"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    found = call("POST", "deployments/filter", {})
    shipped = [one for one in found if one["work_pool_name"] == "vinedresser"]
    assert shipped
    for one in shipped:
        [step] = one["pull_steps"]
        [settings] = step.values()
        assert Path(settings["directory"]).samefile(ROOT) or one["name"] == "search"
        assert one["global_concurrency_limit"]["limit"] == 1
