"""`vinedresser up` after an outage: missed runs of schedules are started or left out."""

from __future__ import annotations

import os
import re
import signal
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

import psutil
import pytest

from tests.flows.standing import Standing, vinedresser
from tests.paths import SCRIPTS
from tests.waiting import until
from vinedresser.processes import ProcessIdentity, kill_group, wait_for_end

pytestmark = pytest.mark.timeout(600)

EXPERIMENT = f"""
[run]
name = "single"
command = ["python", "{SCRIPTS / "cluster_trainer.py"}"]
parameters = {{ epochs = 1, x = 0.3 }}
"""
# Without summer time, and with a time of day that is hours away.
ZONE = ZoneInfo("Asia/Kolkata")
HOUR = (datetime.now(ZONE).hour + 12) % 24
POOL = "work_pools/vinedresser"


def kill(process: dict[str, Any]) -> None:
    """Kill a server or a worker."""
    identity = ProcessIdentity(**process)
    os.kill(identity.pid, signal.SIGKILL)
    wait_for_end(identity)
    kill_group(identity)


def nights(days: int) -> list[datetime]:
    """Return the times of the nightly schedule within the last days."""
    now = datetime.now(ZONE)
    found = [
        (now - timedelta(days=day)).replace(hour=HOUR, minute=0, second=0, microsecond=0)
        for day in range(days + 1)
    ]
    return sorted(one for one in found if now - timedelta(days=days) < one < now)


class Missing:
    """Deployments of one flow with runs whose times have passed.

    Args:
        prefect: the server.
        folder: the folder of the experiment.
    """

    def __init__(self, prefect: Standing, folder: Path) -> None:
        self.prefect = prefect
        (folder / "experiment.toml").write_text(EXPERIMENT, encoding="utf-8")
        said = vinedresser(folder, *("deploy", "experiment.toml", "--name", "all"), *NIGHTLY)
        assert f"at 0 {HOUR} * * *, Asia/Kolkata" in said
        self.deployed = prefect.deployment("train/all")
        self.ids = {"all": str(self.deployed["id"])}

    def deploy(self, name: str, tags: list[str], **other: Any) -> str:
        """Copy the deployment under another name and with other tags; return its id."""
        keys = ("flow_id", "entrypoint", "path", "parameters", "pull_steps", "work_pool_name")
        night = {"cron": f"0 {HOUR} * * *", "timezone": "Asia/Kolkata"}
        body = {
            **{key: self.deployed[key] for key in keys},
            "schedules": [{"schedule": night}],
            "concurrency_limit": 1,
            "concurrency_options": {"collision_strategy": "CANCEL_NEW"},
            **other,
            "name": name,
            "tags": tags,
        }
        self.ids[name] = self.prefect.call("POST", "deployments/", body)["id"]
        return self.ids[name]

    def miss(self, name: str, first: datetime, last: datetime) -> None:
        """Have the scheduler's runs between two times exist, as before an outage."""
        body = {
            "start_time": first.isoformat(),
            "end_time": last.isoformat(),
            "min_time": 0.0,
            "min_runs": 50,
            "max_runs": 50,
        }
        self.prefect.call("POST", f"deployments/{self.ids[name]}/schedule", body)

    def set_state(self, run: dict[str, Any], name: str, when: datetime) -> None:
        """Put a run into a state of type SCHEDULED."""
        details = {"scheduled_time": when.isoformat()}
        state = {"type": "SCHEDULED", "name": name, "state_details": details}
        place = f"flow_runs/{run['id']}/set_state"
        self.prefect.call("POST", place, {"state": state, "force": True})

    def past(self, name: str) -> dict[datetime, dict[str, Any]]:
        """Return the runs of a deployment that were due, by their times."""
        wanted = {"flow_runs": {"deployment_id": {"any_": [self.ids[name]]}}}
        runs = self.prefect.call("POST", "flow_runs/filter", wanted)
        found = {datetime.fromisoformat(run["expected_start_time"]): run for run in runs}
        assert len(found) == len(runs)
        return {when: found[when] for when in sorted(found) if when < datetime.now(UTC)}

    def states(self, name: str) -> list[str]:
        """Return the names of the states of the runs that were due, the oldest first."""
        return [run["state_name"].replace("Late", "Scheduled") for run in self.past(name).values()]


NIGHTLY = ("--cron", f"0 {HOUR} * * *", "--timezone", "Asia/Kolkata", "--catch-up", "all")


@pytest.fixture
def missing(prefect: Standing, tmp_path: Path) -> Iterator[Missing]:
    """Return deployments, which are removed after the test."""
    prefect.checks_logs = False
    # A worker that is killed while it registers can leave Prefect's database locked.
    until(
        lambda: any(
            worker["status"] == "ONLINE"
            for worker in prefect.call("POST", f"{POOL}/workers/filter", {})
        ),
        "the worker is registered",
    )
    made = Missing(prefect, tmp_path)
    yield made
    prefect.call("PATCH", POOL, {"is_paused": False})
    for deployment in made.ids.values():
        prefect.call("DELETE", f"deployments/{deployment}")


def sentences(said: str) -> dict[str, str]:
    """Return what `up` said of each deployment."""
    found = re.findall(r"^train/([\w-]+): (.*)$", said, re.MULTILINE)
    assert len(found) == len(dict(found))
    return dict(found)


def between(first: datetime, last: datetime) -> str:
    """Return how a period is written."""
    return f"from {first:%Y-%m-%d %H:%M %Z} to {last:%Y-%m-%d %H:%M %Z}"


@pytest.mark.slow
def test_missed_runs_are_made_up_for_as_their_deployment_says(
    missing: Missing, tmp_path: Path
) -> None:
    prefect, due = missing.prefect, nights(7)
    # Prefect had planned the first four; for the others no server was running.
    planned, future = due[:4], datetime.now(UTC) + timedelta(days=1)
    others = {
        "last": ["catch_up=last"],
        "none": ["catch_up=none", "other"],
        "untagged": ["other"],
        "unknown": ["catch_up=sometimes"],
        "begun": ["catch_up=none"],
        "paused": ["catch_up=last"],
        "taken": ["catch_up=last"],
    }
    prefect.call("PATCH", POOL, {"is_paused": True})
    kill(prefect.server.worker)
    for name, tags in others.items():
        missing.deploy(name, tags)
    # The server itself cancels late runs whose slot is taken.
    slot = {"slots": 1, "names": [f"deployment:{missing.ids['taken']}"]}
    prefect.call("POST", "v2/concurrency_limits/increment", slot)
    missing.miss("taken", planned[0], planned[-1])
    missing.deploy("foreign", [], entrypoint="mine.py:flow")
    hours = (f"0 {(HOUR + hour) % 24} * * *" for hour in (0, 1))
    twice = [{"schedule": {"cron": cron, "timezone": "Asia/Kolkata"}} for cron in hours]
    missing.deploy("twice", ["catch_up=last"], schedules=twice)
    for name in missing.ids.keys() - {"taken"}:
        missing.miss(name, planned[0], planned[-1])
    missing.miss("untagged", due[-1], due[-1])
    details = {"scheduled_time": (due[0] + timedelta(minutes=1)).isoformat()}
    by_hand = {"type": "SCHEDULED", "state_details": details}
    place = f"deployments/{missing.ids['begun']}/create_flow_run"
    made = prefect.call("POST", place, {"state": by_hand})["id"]
    first, second, *_ = [run for run in missing.past("begun").values() if run["auto_scheduled"]]
    missing.set_state(first, "AwaitingRetry", due[0])
    missing.set_state(second, "Scheduled", future)
    prefect.call("POST", f"deployments/{missing.ids['paused']}/pause_deployment")
    # It looks for them every few seconds, and takes long on a busy machine.
    cancelled = ["Cancelled"] * 4
    until(lambda: missing.states("taken") == cancelled, "late runs are cancelled", seconds=360)

    said = sentences(vinedresser(tmp_path, "up", "--limit", "2"))

    assert {*said} == {"all", "last", "none", "untagged", "unknown", "begun", "taken", "twice"}
    count, period = len(due), between(due[0], due[-1])
    assert re.match(rf"{count} runs .*{period}; all .*due now", said["all"])
    assert missing.states("all") == ["Scheduled"] * count
    for name in ("last", "untagged"):
        missed = count if name == "last" else 5
        assert re.match(
            rf"{missed} runs .*{period}; the last .*due now, {missed - 1} .*left out", said[name]
        )
        assert missing.states(name) == ["Missed"] * 4 + ["Scheduled"]
        assert [*missing.past(name)][-1] == due[-1]
    assert re.match(rf"{count} runs .*{period}; all .*left out", said["none"])
    for name in ("all", "last", "none"):
        assert f'catch_up = "{name}"' in said[name]
    assert missing.states("none") == ["Missed"] * 4
    for run in missing.past("none").values():
        assert run["state_type"] == "CANCELLED"
        assert run["state"]["message"].endswith('left out: catch_up = "none".')
    assert re.match(r"tag catch_up=sometimes: .*\blast, all or none\b", said["unknown"])
    assert missing.states("unknown") == missing.states("foreign") == ["Scheduled"] * 4
    assert missing.past("paused") == {}
    # Neither those that a person has scheduled, nor those that have begun or were put off.
    states = {run["id"]: run["state_name"] for run in prefect.runs("train/begun")}
    kept = {run["id"] for run in (first, second)} | {made}
    assert [states[one] for one in kept].count("Missed") == 0
    assert [*states.values()].count("Missed") == 2
    # One run of the deployment makes up for both schedules.
    assert missing.states("twice").count("Scheduled") == 1
    assert missing.states("twice")[-1] == "Scheduled"
    until_free = re.search(r"the last one is due at (\S+ \S+) \S+, since the slot", said["taken"])
    assert until_free
    *left_out, waiting = missing.past("taken").values()
    assert [run["state_name"] for run in left_out] == ["Missed"] * 4
    assert waiting["state_type"] == "SCHEDULED", waiting["state"]
    later = datetime.fromisoformat(waiting["next_scheduled_start_time"])
    assert f"{later.astimezone(ZONE):%Y-%m-%d %H:%M}" == until_free[1]
    assert timedelta(0) < later - datetime.now(UTC) < timedelta(seconds=330)


@pytest.mark.slow
def test_a_worker_that_outlives_its_server_starts_no_missed_run_before_it_is_dropped(
    missing: Missing, tmp_path: Path
) -> None:
    prefect, due = missing.prefect, nights(4)
    for name in ("none", "one"):
        missing.deploy(name, ["catch_up=none"])
    prefect.call("PATCH", POOL, {"is_paused": True})
    missing.miss("none", due[0], due[-1])
    missing.miss("one", due[-1], due[-1])
    prefect.call("PATCH", POOL, {"is_paused": False})
    before = prefect.server
    kill(before.server)
    said = sentences(vinedresser(tmp_path, "up", "--limit", "2"))
    assert prefect.server.worker == before.worker
    assert said.keys() == {"none", "one"}
    assert re.match(rf"{len(due)} runs .*{between(due[0], due[-1])}; .*left out", said["none"])
    assert re.match(rf"1 run .*{due[-1]:%Y-%m-%d %H:%M %Z}; .*left out", said["one"])
    assert missing.states("none") == ["Missed"] * len(due)
    assert psutil.Process(before.worker["pid"]).status() != psutil.STATUS_STOPPED
    # Nothing was missed since; and an `up` that was killed may have left the worker suspended.
    os.kill(before.worker["pid"], signal.SIGSTOP)
    assert not sentences(vinedresser(tmp_path, "up", "--limit", "2"))
    assert psutil.Process(before.worker["pid"]).status() != psutil.STATUS_STOPPED


@pytest.mark.slow
def test_missed_runs_are_started_one_after_another(missing: Missing, tmp_path: Path) -> None:
    prefect, due = missing.prefect, nights(4)
    missing.deploy("last", ["catch_up=last"])
    kill(prefect.server.worker)
    missing.miss("last", due[0], due[-1])
    missing.miss("all", due[-2], due[-1])
    assert len(sentences(vinedresser(tmp_path, "up", "--limit", "2"))) == 2
    for name in ("last", "all"):
        for run in missing.past(name).values():
            if run["state_type"] != "CANCELLED":
                prefect.await_state(run["id"], "COMPLETED")
    assert missing.states("last") == ["Missed"] * (len(due) - 1) + ["Completed"]
    assert missing.states("all") == ["Completed"] * 2
