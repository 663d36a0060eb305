"""A week of a team in some minutes; `make week` prints it.

Three people have five schedules on one machine: two experiments with a broken variant each, two
sweeps, and the retention of their store. Each day something happens to it; `vinedresser doctor`
names it while it lasts, and after what it recommends all is as if nothing had been.

What is compressed: a day is one run of each schedule, begun together through Prefect's API instead
of by the clock; trainings take two seconds; all three people are one user of the machine. The
upgrade is a restart on a store with a run that an earlier version has written.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tarfile
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any

import psutil
import pytest

from tests.flows.chaos.test_server_restarts import kill
from tests.flows.standing import Standing, vinedresser
from tests.waiting import until
from vinedresser import open_store
from vinedresser.infra.services.servers import start_mlflow_ui, stop_server
from vinedresser.infra.services.servers.local_server import LocalServer
from vinedresser.infra.services.tracking.client import connected
from vinedresser.processes import marked_processes

pytestmark = [pytest.mark.chaos, pytest.mark.timeout(7200)]

# Runs of an experiment, and trials of a sweep.
_RUNS = int(os.environ.get("WEEK_RUNS", "14"))
_KEEP, _NIGHTS = 20, 6
_OLD = Path(__file__).parents[2] / "store/old_stores/2026-11-22.tar.xz"
_FLOW = "prefect.engine"
_DONE = ("COMPLETED", "FAILED", "CRASHED", "CANCELLED")

TRAIN = """
import argparse, time
from vinedresser.capture import Hook

parser = argparse.ArgumentParser()
parser.add_argument("--x", type=float, default=0.5)
x = parser.parse_args().x
with Hook() as hook:
    for step in range(40 if x > 0 else 100_000):
        hook.step(loss=float("nan") if x < 0 and step > 20 else 1 / (1 + step))
        time.sleep(0.02)
    with hook.mode("eval"):
        hook.metric("accuracy", x)
"""
RUN = """
[run]
name = "{person}"
command = ["python", "{folder}/train.py"]
store = "{store}"
max_concurrent = 2

[rules]
preset = "none"

[rules.nonfinite]

[actions]
on_stop = ["stop", "notify"]

[actions.notify]
webhook = "{webhook}"

[tracking]
uri = "{mlflow}"
"""
SWEEP = """
[sweep]
metric = "accuracy"
direction = "maximize"
epochs = 1
pruner = "none"
sampler = "grid"
retries = 5

[space]
x = [{x}]
"""
# In a namespace of its own: a disk that is full, and then is not.
FULL = """
mount -t tmpfs -o size=16m tmpfs "$1" || exit 77
cat /dev/zero 2>/dev/null > "$1/data"
"$2" -m vinedresser train full.toml > full.txt 2>&1 && exit 3
"$2" -m vinedresser doctor "$1" --json > doctor.txt
rm "$1/data"
"$2" -m vinedresser train full.toml > again.txt 2>&1 || exit 4
"$2" -m vinedresser status "$1" > status.txt
"""


class Week:
    """The team with its servers.

    Args:
        folder: for all files.
        say: prints a line.
    """

    def __init__(self, folder: Path, say: Callable[[str], None]) -> None:
        self.folder = folder
        self.store = folder / "runs"
        self.alerts: Counter[str] = Counter()
        self.flow_runs: list[str] = []
        self.retried = 0
        self._say = say
        self._begun = time.monotonic()
        self.store.mkdir()
        self.mlflow = start_mlflow_ui(f"sqlite:///{folder}/mlflow.db")

    def say(self, text: str) -> None:
        """Print what happens, and when."""
        self._say(f"{time.monotonic() - self._begun:6.0f} s  {text}")

    def write(self, name: str, **fields: object) -> Path:
        """Write a file of a person; return it."""
        path = self.folder / f"{name}.toml"
        given = {"folder": self.folder, "store": self.store, "mlflow": self.mlflow.url}
        path.write_text(RUN.format(person=name, **(given | fields)), encoding="utf-8")
        return path

    def deploy(self, webhook: str) -> list[str]:
        """Deploy the five schedules; return their names."""
        (self.folder / "train.py").write_text(TRAIN, encoding="utf-8")
        xs = [number / 100 for number in range(1, _RUNS + 1)]
        files = []
        for person in ("anna", "ben"):
            path = self.write(person, webhook=webhook)
            with path.open("a", encoding="utf-8") as more:
                for number, x in enumerate([-1.0, *xs[1:]]):
                    more.write(f"[variants.v{number}]\nparameters = {{ x = {x} }}\n")
            search = self.write(f"{person}-search", webhook=webhook)
            with search.open("a", encoding="utf-8") as more:
                more.write(SWEEP.format(x=", ".join(map(str, xs))))
            files += [f"train/{person}", f"sweep/{person}-search"]
        text = f'[retention]\nstore = "{self.store}"\nkeep = {_KEEP}\ndelete = true\n'
        (self.folder / "clara.toml").write_text(text, encoding="utf-8")
        files.append("retain/clara")
        for name in files:
            path = self.folder / f"{name.partition('/')[2]}.toml"
            vinedresser(self.folder, "deploy", str(path), "--cron", "0 2 * * *", code=0)
        return files

    def doctor(self, *more: str) -> list[str]:
        """Return the problems, and checks with more states, as `vinedresser doctor` says them."""
        said = vinedresser(self.folder, "doctor", str(self.store), "--json", code=None)
        checks = [json.loads(line) for line in said.splitlines() if line.startswith("{")]
        assert checks, said
        return [
            f"{one['area']}: {one['subject']}: {one['seen']}"
            for one in checks
            if one["state"] in ("problem", "unknown", *more)
        ]

    def expect(self, *words: str) -> None:
        """Check that the doctor names a trouble."""
        found = self.doctor("warning")
        self.say(f"doctor: {'; '.join(found) or 'nothing'}"[:200])
        for word in words:
            assert any(word in one for one in found), (word, found)

    @property
    def prefect(self) -> Standing:
        """The server of `vinedresser up`."""
        return Standing()

    def up(self, *port: str) -> None:
        """Do what the doctor recommends."""
        vinedresser(self.folder, "up", "--data", "prefect", "--limit", "2", *port, code=0)

    def close(self) -> None:
        """Stop the servers."""
        vinedresser(self.folder, "down")
        stop_server(self.mlflow, grace=0.0)

    def train(self, names: list[str]) -> list[str]:
        """Begin the night; return the flow runs once some train."""
        before = {*open_store(self.store)}
        begun = [self.prefect.begin(name) for name in names]
        until(lambda: {*open_store(self.store)} - before, "a training", seconds=600)
        self.flow_runs += begun
        return begun

    def settle(self, begun: list[str]) -> None:
        """Wait for the end of the night, and retry what failed, as a person would."""
        for flow_run in begun:
            self._await(flow_run)
            if self.prefect.state(flow_run) in ("FAILED", "CRASHED"):
                self.retried += 1
                state = {"type": "SCHEDULED", "name": "AwaitingRetry"}
                body = {"state": state, "force": True}
                self.prefect.call("POST", f"flow_runs/{flow_run}/set_state", body)
                self._await(flow_run)
            assert self.prefect.state(flow_run) == "COMPLETED", self.end_of_log()

    def _await(self, flow_run: str) -> None:
        until(lambda: self.prefect.state(flow_run) in _DONE, "the end of a flow run", 1800)

    def trainings(self) -> list[int]:
        """Return the processes that train."""
        marked = marked_processes(f"XDG_STATE_HOME={self.folder / 'state'}")
        script = str(self.folder / "train.py")
        return [pid for pid in marked if script in psutil.Process(pid).cmdline()]

    def kill_flows(self) -> int:
        """Kill the processes of flow runs; return how many there were."""
        marked = marked_processes(f"XDG_STATE_HOME={self.folder / 'state'}")
        flows = [one for one in map(psutil.Process, marked) if _FLOW in one.cmdline()]
        for one in flows:
            one.kill()
        return len(flows)

    def end_of_log(self) -> str:
        """Return the end of the worker's log."""
        log = Path(self.prefect.server.home, "worker.log")
        return log.read_text(encoding="utf-8", errors="replace")[-4000:]


@contextmanager
def webhook(alerts: Counter[str]) -> Iterator[str]:
    """Count the messages about each run; yield the URL."""

    class Receiver(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            alerts[body["run"]["id"] if "run" in body else body["id"]] += 1
            self.send_response(200)
            self.end_headers()

        def log_message(self, *_: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Receiver) as server:
        Thread(target=server.serve_forever).start()
        try:
            yield f"http://127.0.0.1:{server.server_port}/"
        finally:
            server.shutdown()


@pytest.fixture
def week(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Iterator[Week]:
    """Return a team whose servers run."""

    def say(line: str) -> None:
        with capsys.disabled():
            print(line, flush=True)  # noqa: T201 - it is what `make week` shows

    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    week = Week(tmp_path, say)
    try:
        week.up("--port", "0")
        yield week
    finally:
        week.close()


def test_a_week(week: Week) -> None:
    with webhook(week.alerts) as url:
        names = week.deploy(url)
        week.say(f"Monday: nothing happens; {_RUNS} runs of each experiment and sweep")
        week.expect()
        week.settle(week.train(names))
        assert week.doctor() == []
        _tuesday_prefect(week, names)
        _wednesday_worker(week, names)
        _thursday_mlflow(week, names)
        _friday_disk(week, url)
        _saturday_password(week, names)
        _sunday_upgrade(week, names)
        _nothing_is_left(week)


def _tuesday_prefect(week: Week, names: list[str]) -> None:
    week.say("Tuesday: Prefect's server is killed")
    begun = week.train(names)
    kill(week.prefect.server.server)
    week.expect("its process is gone")
    week.up()
    week.settle(begun)
    assert week.doctor() == []


def _wednesday_worker(week: Week, names: list[str]) -> None:
    week.say("Wednesday: the worker and the flows are killed")
    begun = week.train(names)
    kill(week.prefect.server.worker)
    assert week.kill_flows() > 0
    week.expect("worker: its process is gone", "their process is gone")
    week.up()
    week.settle(begun)
    assert week.doctor() == []


def _thursday_mlflow(week: Week, names: list[str]) -> None:
    week.say("Thursday: MLflow's server is killed")
    begun = week.train(names)
    port = int(week.mlflow.url.rpartition(":")[2])
    stop_server(week.mlflow, grace=0.0)
    week.expect("MLflow: ")
    week.mlflow = _mlflow_again(week, port)
    week.settle(begun)
    assert week.doctor() == []


def _mlflow_again(week: Week, port: int) -> LocalServer:
    return start_mlflow_ui(f"sqlite:///{week.folder}/mlflow.db", port=port)


def _friday_disk(week: Week, url: str) -> None:
    week.say("Friday: the disk is full")
    store = week.folder / "small"
    store.mkdir()
    path = week.write("full", store=store, webhook=url)
    done = subprocess.run(
        ["unshare", "-rm", "sh", "-c", FULL, "sh", str(store), sys.executable],
        cwd=path.parent,
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode == 77 or done.stderr.startswith("unshare:"):
        week.say(f"NO DISK WAS FULL: none can be mounted here: {done.stderr}")
        return
    texts = {
        name: (week.folder / name).read_text(encoding="utf-8")
        for name in ("full.txt", "doctor.txt", "again.txt")
        if (week.folder / name).exists()
    }
    assert done.returncode == 0, (done, texts)
    assert "No space left on device" in texts["full.txt"]
    assert "Traceback" not in texts["full.txt"]
    assert "no file can be made" in texts["doctor.txt"]
    assert "finished" in (week.folder / "status.txt").read_text(encoding="utf-8")


def _saturday_password(week: Week, names: list[str]) -> None:
    week.say("Saturday: the password has changed, and Ben has the old one")
    old = week.prefect.server.environment()
    vinedresser(week.folder, "down", code=0)
    week.up("--port", old["PREFECT_API_URL"].split(":")[2].removesuffix("/api"))
    with pytest.MonkeyPatch.context() as ben:
        ben.setenv("XDG_STATE_HOME", str(week.folder / "ben"))
        for name, value in old.items():
            ben.setenv(name, value)
        week.expect("refuses the credentials in PREFECT_API_AUTH_STRING")
        said = vinedresser(week.folder, "deploy", "ben.toml", code=2)
        assert "refuses the credentials in PREFECT_API_AUTH_STRING" in said
        ben.setenv("PREFECT_API_AUTH_STRING", week_password(week))
        assert week.doctor() == []
    week.settle(week.train(names))


def week_password(week: Week) -> str:
    """Return the password that is valid now."""
    with pytest.MonkeyPatch.context() as platform:
        platform.setenv("XDG_STATE_HOME", str(week.folder / "state"))
        return week.prefect.server.password


def _sunday_upgrade(week: Week, names: list[str]) -> None:
    week.say("Sunday: an upgrade; a run of an earlier version is in the store")
    vinedresser(week.folder, "down", code=0)
    with tarfile.open(_OLD) as archive:
        archive.extractall(week.folder / "earlier", filter="data")
    [old] = (week.folder / "earlier").rglob("hooked")
    old.rename(week.store / "hooked")
    week.up()
    week.settle(week.train(names))
    assert week.doctor() == []


def _nothing_is_left(week: Week) -> None:
    """Check the end of the week."""
    vinedresser(week.folder, "reconcile", str(week.store), code=0)
    vinedresser(week.folder, "gc", "clara.toml", "--delete", code=0)
    active: dict[str, Any] = {"state": {"type": {"any_": ["RUNNING", "PENDING", "CANCELLING"]}}}
    assert week.prefect.call("POST", "flow_runs/count", {"flow_runs": active}) == 0
    with connected(week.mlflow.url) as client:
        experiments = [one.experiment_id for one in client.search_experiments()]
        runs = [*client.search_runs(experiments, max_results=10_000)]
    counts = Counter(run.info.status for run in runs)
    broken = [run for run in runs if run.data.tags.get("stop.rule") == "nonfinite"]
    left = open_store(week.store)
    again = Counter(week.alerts.values())
    failed = [run.info.run_name for run in runs if run.info.status == "FAILED"]
    week.say(
        f"{len(runs)} runs of MLflow ({dict(counts)}, failed: {failed}), "
        f"{len(week.flow_runs)} flow runs, {week.retried} retried; {len(left)} runs kept; "
        f"{len(broken)} broken ones, alerts by messages per run: {dict(again)}"
    )
    assert {*counts} <= {"FINISHED", "KILLED", "FAILED"}
    # Each night two experiments, two sweeps, and these themselves; what was killed began again.
    assert len(runs) >= _NIGHTS * (4 * _RUNS + 2)
    assert len(left) <= _KEEP + 1
    assert {*again} == {1}
    assert len(week.alerts) >= len(broken)
    assert week.doctor() == []
    assert week.trainings() == []
