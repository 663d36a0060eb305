"""Deployments on a real Prefect server with a worker: schedules, events, cancelling, retention."""

from __future__ import annotations

import json
import os
import re
import time
import urllib.request
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

import pytest

from tests.flows.standing import Standing, program, vinedresser, write_sweep
from tests.paths import ROOT, SCRIPTS
from tests.tasks.test_retention import KILLED, ended_run
from tests.waiting import until
from tests.warm_python import COMMANDS
from vinedresser import open_store
from vinedresser.processes import marked_processes
from vinedresser.store.reading.reader import open_run
from vinedresser.store.records import RUN_ID_VARIABLE
from vinedresser.tasks.config.sweep_file import load_sweep
from vinedresser.tasks.parents.dated import dated
from vinedresser.tasks.retention_reasons import pin

EXPERIMENT = f"""
[run]
name = "single"
command = ["python", "{SCRIPTS / "cluster_trainer.py"}"]
parameters = {{ epochs = 2, x = 0.3 }}

[rules.nonfinite]
"""

NAN = """
import time
from vinedresser.capture import Hook

with Hook() as hook:
    for step in range(100_000):
        hook.step(loss=1.0 if step < 20 else float("nan"))
        time.sleep(0.01)
"""

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

pytestmark = pytest.mark.timeout(600)


@pytest.mark.thorough
def test_what_is_wrong_is_said_before_prefect_is_asked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    write_sweep(tmp_path)
    said = vinedresser(tmp_path, "deploy", "sweep.toml", code=2)
    assert "no Prefect server configured: start one on this machine with `vinedresser up`" in said
    said = vinedresser(tmp_path, "deploy", "sweep.toml", "--paused", code=2)
    assert "--timezone, --paused, --catch-up: require --cron" in said
    monkeypatch.setenv("PREFECT_API_URL", "http://127.0.0.1:9/api")
    said = vinedresser(tmp_path, "deploy", "sweep.toml", "--cron", "at two", code=2)
    assert "cron 'at two': " in said
    words = ("--cron", "0 2 * * *", "--catch-up", "first")
    said = vinedresser(tmp_path, "deploy", "sweep.toml", *words, code=2)
    assert "catch_up 'first': must be last, all or none" in said
    file = tmp_path / "sweep.toml"
    file.write_text(file.read_text(encoding="utf-8").replace("metric", "metrik"), encoding="utf-8")
    said = vinedresser(tmp_path, "deploy", "sweep.toml", code=2)
    assert "sweep.toml: sweep.metrik: no such key; did you mean metric" in said


def test_each_time_makes_a_sweep_of_its_own_in_one_experiment(tmp_path: Path) -> None:
    write_sweep(tmp_path)
    swept = load_sweep(tmp_path / "sweep.toml").marked("20261121T020000Z")
    assert swept.name == "search-20261121T020000Z"
    assert swept.experiment.store == tmp_path / "runs" / swept.name
    assert swept.experiment.tracking_experiment == "search"
    assert not swept.has_begun


@pytest.mark.thorough
def test_flow_runs_of_the_same_second_make_sweeps_of_their_own(tmp_path: Path) -> None:
    write_sweep(tmp_path)
    swept = load_sweep(tmp_path / "sweep.toml")
    due = datetime(2026, 11, 21, 2, tzinfo=UTC)
    flows = [str(number) for number in range(8)]
    with ThreadPoolExecutor(8) as several:
        made = [one.name for one in several.map(lambda flow: dated(swept, flow, due), flows)]
    first = "search-20261121T020000Z"
    assert sorted(made) == [first, *(f"{first}-{number}" for number in range(2, 9))]
    # A retried flow run gets its sweep again.
    assert [dated(swept, flow, due).name for flow in flows] == made
    later = dated(swept, flows[0], due.replace(second=1))
    assert later.experiment.store == tmp_path / "runs" / "search-20261121T020001Z"


@pytest.mark.thorough
def test_schedules_are_planned_paused_and_replaced(prefect: Standing, tmp_path: Path) -> None:
    write_sweep(tmp_path)
    # Two deployments of one file.
    weekly = ("--name", "weekly", "--cron", "0 3 * * 0", "--paused")
    said = vinedresser(tmp_path, "deploy", "sweep.toml", *weekly)
    assert "at 0 3 * * 0, UTC (paused)" in said
    nightly = ("--name", "nightly", "--cron", "0 2 * * *", "--timezone", "Europe/Vienna")
    said = vinedresser(tmp_path, "deploy", "sweep.toml", *nightly)
    assert "deployed sweep/nightly on the work pool vinedresser, at 0 2 * * *, Europe" in said
    assert re.search(r"^first run \d{4}-\d\d-\d\d 02:00 CES?T$", said, re.MULTILINE)
    planned = [
        datetime.fromisoformat(run["expected_start_time"]).astimezone(ZoneInfo("Europe/Vienna"))
        for run in prefect.runs("sweep/nightly")
    ]
    assert {(when.hour, when.minute) for when in planned} == {(2, 0)}
    assert min(planned) > datetime.now(UTC)
    # The same scheduler has seen this one, too.
    assert prefect.runs("sweep/weekly") == []
    [schedule] = prefect.deployment("sweep/nightly")["schedules"]
    for verb, active in (("pause", False), ("resume", True)):
        program(
            tmp_path, *("prefect", "deployment", "schedule", verb), "sweep/nightly", schedule["id"]
        )
        [schedule] = prefect.deployment("sweep/nightly")["schedules"]
        assert schedule["active"] is active
        if not active:
            assert prefect.runs("sweep/nightly") == []
    said = vinedresser(tmp_path, "deploy", "sweep.toml", "--name", "nightly")
    assert "on the work pool vinedresser, on request" in said
    assert prefect.deployment("sweep/nightly")["schedules"] == []
    assert prefect.runs("sweep/nightly") == []
    other = tmp_path / "other"
    other.mkdir()
    write_sweep(other)
    taken = ("deploy", "sweep.toml", "--name", "weekly")
    said = vinedresser(other, *taken, code=2)
    assert f"sweep/weekly is already the deployment of {tmp_path / 'sweep.toml'};" in said
    assert len(prefect.deployment("sweep/weekly")["schedules"]) == 1
    vinedresser(other, *taken, "--replace")
    replaced = prefect.deployment("sweep/weekly")
    assert replaced["parameters"]["path"] == str(other / "sweep.toml")


@pytest.mark.slow
def test_flows_of_the_command_line_and_of_an_event_report_to_the_server(
    prefect: Standing, tmp_path: Path
) -> None:
    (tmp_path / "experiment.toml").write_text(EXPERIMENT, encoding="utf-8")
    write_sweep(tmp_path)
    vinedresser(tmp_path, "deploy", "experiment.toml")
    deployment = prefect.deployment("train/single")["id"]
    store = {"template": "{{ event.payload.store }}", "__prefect_kind": "jinja"}
    automation = {
        "name": "explain drift",
        "trigger": {
            "type": "event",
            "posture": "Reactive",
            "expect": ["drift.alert"],
            "match": {"prefect.resource.id": "model.*"},
            "threshold": 1,
            "within": 0,
        },
        "actions": [
            {
                "type": "run-deployment",
                "source": "selected",
                "deployment_id": deployment,
                "parameters": {"store": store},
            }
        ],
    }
    made = prefect.call("POST", "automations/", automation)
    payload = json.dumps({"store": f"{tmp_path}/event"})
    words = ("drift.alert", "--resource-id", "model.digits", "--payload", payload)
    program(tmp_path, "prefect", "event", "emit", *words)
    # Meanwhile.
    said = vinedresser(tmp_path, "sweep", "sweep.toml")
    assert "2 finished" in said
    until(lambda: prefect.runs("train/single"), "the event's flow run")
    [run] = prefect.runs("train/single")
    prefect.await_state(run["id"], "COMPLETED")
    assert open_run(tmp_path / "event" / "single").status.state == "finished"
    assert made["id"] in str(run["created_by"])
    sweeps = prefect.call("POST", "flow_runs/filter", {"flows": {"name": {"any_": ["sweep"]}}})
    [swept] = [sweep for sweep in sweeps if sweep["deployment_id"] is None]
    assert swept["state"]["type"] == "COMPLETED"
    [summary] = prefect.artifacts("search")
    assert "2 finished; best trial-0001" in summary
    assert f"`{tmp_path}/runs/search/sweep.html`" in summary
    [trial] = prefect.artifacts("search-trial-0000")
    assert "**Finished; cannot tell: no rule has judged it**" in trial


@pytest.mark.thorough
def test_pages_of_the_server_show_which_rule_stopped_a_training_and_what_to_try(
    prefect: Standing, tmp_path: Path
) -> None:
    name = "Rate 0.1_é|x"
    (tmp_path / "train.py").write_text(NAN, encoding="utf-8")
    text = EXPERIMENT.replace("single", name).replace(
        str(SCRIPTS / "cluster_trainer.py"), "train.py"
    )
    (tmp_path / "experiment.toml").write_text(text.replace("parameters", "#"), encoding="utf-8")
    said = vinedresser(tmp_path, "train", "experiment.toml")
    # Messages for the pages are not printed.
    assert "Finished in state" not in said
    # Pages that a browser can fill.
    with urllib.request.urlopen(f"{prefect.server.url}/ui-settings") as answer:
        assert json.loads(answer.read())["api_url"] == f"{prefect.server.url}/api"
    named = {
        "flow_runs": {"name": {"any_": ["train experiment"]}, "deployment_id": {"is_null_": True}}
    }
    [flow] = prefect.call("POST", "flow_runs/filter", named)
    wanted = {"flow_runs": {"id": {"any_": [flow["id"]]}}}
    tasks = prefect.call("POST", "task_runs/filter", wanted)
    states = {task["name"].partition(" ")[0]: task["state"]["name"] for task in tasks}
    assert flow["state"]["name"] == states["launch"] == "Stopped by nonfinite"
    assert flow["state"]["type"] == "COMPLETED"
    assert states["finish"] == "Completed"
    [body] = prefect.artifacts("rate-0-1-x")
    assert "**Stopped by nonfinite at step " in body
    assert "\nTry: " in body
    assert "/report.html`\n- MLflow: run `" in body
    until(
        lambda: any(
            "stopped by nonfinite at step" in log["message"]
            for log in prefect.call("POST", "logs/filter", {"logs": {}})
        ),
        "the task's message",
    )


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


@pytest.mark.thorough
def test_a_store_keeps_its_bounds_by_schedule(prefect: Standing, tmp_path: Path) -> None:
    store = tmp_path / "runs"
    for days in (1, 2, 3, 4, 5):
        ended_run(store / f"run-{days}", days=days)
    pin(store / "run-4", "the paper")
    file = tmp_path / "old.toml"
    file.write_text('[retention]\nstore = "runs"\nkeep = 2\n', encoding="utf-8")
    said = vinedresser(tmp_path, "deploy", "old.toml", "--cron", "0 4 * * *")
    assert "deployed retain/old on the work pool vinedresser, at 0 4 * * *, UTC" in said

    flow_run = prefect.begin("retain/old")
    prefect.await_state(flow_run, "COMPLETED")
    state = prefect.call("GET", f"flow_runs/{flow_run}")["state"]
    assert state["name"] == "Listed"
    assert state["message"] == "2 runs, 0.0 MB would be removed: delete = true"
    [text] = prefect.artifacts("retain-old")
    assert "- run-5 (ended " in text
    assert "stays: pinned by" in text
    assert "- 2 runs stay: among the newest 2 (keep)" in text
    assert len(open_store(store)) == 5

    # The file is read again; and a removal was killed meanwhile, which is no half of a run.
    with file.open("a", encoding="utf-8") as more:
        more.write("delete = true\n")
    words = ["-c", KILLED, str(store / "run-5"), "os.remove", "exit.json"]
    assert COMMANDS.run(words, tmp_path, os.environ).returncode == -9
    assert "run-5" not in open_store(store)
    flow_run = prefect.begin("retain/old")
    prefect.await_state(flow_run, "COMPLETED")
    state = prefect.call("GET", f"flow_runs/{flow_run}")["state"]
    assert (state["name"], state["message"]) == ("Removed", "1 run, 0.0 MB removed")
    assert sorted(open_store(store)) == ["run-1", "run-2", "run-4"]
    assert not (store / "run-5").exists()
    ended = time.strftime("%Y-%m-%d", time.localtime(time.time() - 3 * 86_400))
    assert f"- run-3 (ended {ended}" in prefect.artifacts("retain-old")[-1]


@pytest.mark.slow
def test_a_schedule_starts_a_sweep_by_itself(prefect: Standing, tmp_path: Path) -> None:
    write_sweep(tmp_path)
    vinedresser(tmp_path, "deploy", "sweep.toml", "--name", "minutely", "--cron", "* * * * *")
    due = prefect.runs("sweep/minutely")[0]
    try:
        prefect.await_state(due["id"], "COMPLETED")
    finally:
        # No further ones.
        vinedresser(tmp_path, "deploy", "sweep.toml", "--name", "minutely")
    when = datetime.fromisoformat(due["expected_start_time"])
    trials = [tmp_path / "runs" / f"search-{when:%Y%m%dT%H%M%SZ}" / f"trial-000{i}" for i in (0, 1)]
    assert [open_run(trial).status.state for trial in trials] == ["finished", "finished"]


@pytest.mark.slow
def test_a_cancelled_sweep_leaves_checkpoints_and_resumes_on_retry(
    prefect: Standing, tmp_path: Path, mlflow_runs: Callable[[Path], Any]
) -> None:
    hold = write_sweep(tmp_path)
    hold.touch()
    vinedresser(tmp_path, "deploy", "sweep.toml")
    deployed = prefect.deployment("sweep/search")
    assert deployed["parameters"] == {"path": str(tmp_path / "sweep.toml"), "dated": True}
    flow_run = prefect.begin("sweep/search")
    store = tmp_path / "runs"
    until(lambda: len(list(store.glob("search-*/trial-*/index/0"))) == 2, "two trials to train")
    # A second run at the same time does not start.
    other = prefect.begin("sweep/search")
    prefect.await_state(other, "CANCELLED")
    message = prefect.call("GET", f"flow_runs/{other}")["state"]["message"]
    assert message == "Deployment concurrency limit reached."

    program(tmp_path, "prefect", "flow-run", "cancel", flow_run)
    prefect.await_state(flow_run, "CANCELLED")
    [sweep] = store.glob("search-*")
    trials = [path.parent for path in sweep.glob("trial-*/run.json")]
    assert len(trials) == 2
    for trial in trials:
        run = open_run(trial)
        assert (run.status.state, run.status.by) == ("stopped", "person")
        assert run.status.reason == "its flow was cancelled, or sent SIGTERM"
        assert list((trial / "checkpoints").iterdir())
        assert not list(marked_processes(f"{RUN_ID_VARIABLE}={run.info.id}"))
    assert {mlflow_run["status"] for mlflow_run in mlflow_runs(store).values()} == {"KILLED"}

    hold.unlink()
    program(tmp_path, "prefect", "flow-run", "retry", flow_run)
    prefect.await_state(flow_run, "COMPLETED")
    assert list(store.glob("search-*")) == [sweep]
    again = [open_run(sweep / f"trial-000{number}-2") for number in (0, 1)]
    assert [run.status.state for run in again] == ["finished", "finished"]
    assert mlflow_runs(store)[sweep.name]["status"] == "FINISHED"


@pytest.mark.slow
def test_the_shipped_deployments_can_be_deployed(prefect: Standing) -> None:
    program(ROOT, "prefect", "--no-prompt", "deploy", "--all")
    found = prefect.call("POST", "deployments/filter", {})
    shipped = {one["name"]: one for one in found if str(ROOT) in str(one["pull_steps"])}
    assert {"digits", "digits-sweep", "trees-sweep"} <= set(shipped)
    for one in shipped.values():
        assert one["work_pool_name"] == "vinedresser"
        assert one["global_concurrency_limit"]["limit"] == 1
        assert [schedule["active"] for schedule in one["schedules"]] == [False]
