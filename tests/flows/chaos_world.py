"""A sweep with its servers, each in processes of its own that can be killed at any moment."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from threading import Thread
from typing import Any, NamedTuple

import psutil

from tests.flows.chaos_trainer import EPOCH, accuracy
from tests.waiting import until
from vinedresser.infra.servers import start_mlflow_ui, stop_server
from vinedresser.infra.servers.local_server import LocalServer, free_ports, start_server
from vinedresser.processes import marked_processes
from vinedresser.store.reading.reader import Run, open_run
from vinedresser.store.records import Heartbeat, heartbeat_key, read_record
from vinedresser.store.storage import LocalStorage, Location
from vinedresser.store.storage.spool import spools
from vinedresser.tasks.config.sweep_file import Sweep, load_sweep
from vinedresser.tasks.lifecycle.earlier_runs import runs_of_trial
from vinedresser.tasks.places.checkpoints import SavedCheckpoint
from vinedresser.tasks.stores import runs_in
from vinedresser.tasks.sweeping.sweep_record import JOURNAL
from vinedresser.tasks.sweeping.sweep_result import has_begun
from vinedresser.testing.s3_server import BUCKET, TestServer

__all__ = ["KINDS", "SERVERS", "BrokenOff", "Size", "World", "until"]

SCRIPT = Path(__file__).with_name("chaos_trainer.py")
SERVERS = ("Prefect server", "MLflow server", "SeaweedFS")
# By what a process is known by its command line.
_PROCESSES = {
    "supervisor": "vinedresser.infra.supervisor",
    "guard": "vinedresser.infra.guard",
    "judge": "vinedresser.rules.",
    "relay": "vinedresser.infra.relay",
    "trainer": str(SCRIPT),
}
KINDS = ("flow", "trainer", "supervisor", "judge", "guard", "relay", *SERVERS)

_SWEEP = """
[sweep]
metric = "accuracy"
direction = "maximize"
epochs = {epochs}
pruner = "none"
sampler = "grid"
retries = 1000
resume = "resume"

[space]
x = [{x}]

[run]
name = "{name}"
command = ["python", "{script}"]
store = "{store}"
total_steps = {steps}
max_concurrent = 2
grace = 20.0
parameters = {{ epochs = {epochs}, pause = {pause}{hold} }}

[rules.nonfinite]

[tracking]
uri = "{mlflow}"
"""

_READ_MLFLOW = """
import json, sys, mlflow
client = mlflow.MlflowClient(sys.argv[1])
experiment = client.get_experiment_by_name(sys.argv[2])
runs = client.search_runs([experiment.experiment_id], max_results=10000)
print(json.dumps({run.info.run_name: run.info.status for run in runs}))
"""


class Size(NamedTuple):
    """Of a sweep: so many trials of so many epochs, each of which takes so many seconds."""

    trials: int
    epochs: int
    pause: float


class BrokenOff(NamedTuple):
    """A run that did not come to its end, and what was lost with it.

    Attributes:
        run: its name.
        state: how it ended.
        stored: steps of the trial that had been taken and stored by then.
        resumed: steps of the trial at which the next run began.
    """

    run: str
    state: str
    stored: int
    resumed: int

    @property
    def lost(self) -> int:
        """Steps that were taken twice."""
        return self.stored - self.resumed


class World:
    """A sweep, with what it needs of servers.

    Args:
        folder: for all files.
        remote: the sweep's runs are on S3.
        servers: Prefect and MLflow are servers; else there is one for the flow, and a database.
    """

    def __init__(self, folder: Path, *, remote: bool, servers: bool) -> None:
        self.folder = folder
        self.remote = remote
        self._marker = {"CHAOS": f"{folder}"}
        self._prefect_port, self._mlflow_port = free_ports("127.0.0.1", 2)
        self._s3 = TestServer(folder / "s3") if remote else None
        self._prefect = self._start_prefect() if servers else None
        self._mlflow = self._start_mlflow() if servers else None
        self._flow: subprocess.Popen[bytes] | None = None
        self._steps: dict[str, int] = {}
        self._returning: dict[str, Thread] = {}
        self.name = ""
        self.file = folder / "sweep.toml"
        self.environment = {
            **(self._s3.environment if self._s3 else {}),
            **({"PREFECT_API_URL": f"{self._prefect.url}/api"} if self._prefect else {}),
            "PREFECT_HOME": str(folder / "prefect-client"),
            "VINEDRESSER_SPOOL": str(folder / "spool"),
        }
        os.environ |= self.environment

    def close(self) -> None:
        """End all processes."""
        self.await_servers()
        for pid in marked_processes(f"CHAOS={self.folder}"):
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        for server in filter(None, (self._prefect, self._mlflow)):
            stop_server(server, grace=0.0)
        if self._s3:
            self._s3.close()
        for name in self.environment:
            os.environ.pop(name, None)

    def write(self, name: str, size: Size, *, hold: Path | None = None) -> None:
        """Write the sweep file of another sweep, whose last epochs may wait for a file."""
        self.name = name
        text = _SWEEP.format(
            name=name,
            x=", ".join(f"{one / 10:.1f}" for one in range(1, size.trials + 1)),
            epochs=size.epochs,
            steps=size.epochs * EPOCH,
            pause=size.pause,
            hold=f', hold = "{hold}"' if hold else "",
            script=SCRIPT,
            store=self._store,
            mlflow=self._tracking_uri,
        )
        self.file.write_text(text, encoding="utf-8")

    @property
    def sweep(self) -> Sweep:
        """The sweep, as its file says."""
        return load_sweep(self.file)

    # The flow.

    def start(self, *arguments: str) -> None:
        """Start the flow."""
        with (self.folder / "flow.log").open("ab") as log:
            self._flow = subprocess.Popen(
                [sys.executable, "-m", "vinedresser", "sweep", str(self.file), *arguments],
                cwd=self.folder,
                stdout=log,
                stderr=log,
                env={**os.environ, **self._marker},
                start_new_session=True,
            )

    def go_on(self) -> None:
        """Start the flow again, after the one before has ended."""
        self.start(*(["--resume"] if has_begun(self.sweep) else []))

    @property
    def code(self) -> int | None:
        """The flow's exit code; None while it lives."""
        assert self._flow is not None
        return self._flow.poll()

    def said(self) -> str:
        """Return the end of what the flows printed."""
        return (self.folder / "flow.log").read_text(encoding="utf-8", errors="replace")[-6000:]

    def reconcile(self) -> subprocess.CompletedProcess[str]:
        """Run `vinedresser reconcile` on the store in which the sweep has its own."""
        return subprocess.run(
            [sys.executable, "-m", "vinedresser", "reconcile", self._store],
            cwd=self.folder,
            capture_output=True,
            text=True,
            check=False,
            env={**os.environ, **self._marker},
        )

    def sweep_store(self) -> Location:
        """Return the store of the sweep's trials."""
        return self.sweep.experiment.store

    # Killing.

    def processes(self, kind: str) -> list[int]:
        """Return the ids of the living processes of a kind."""
        assert self._flow is not None
        if kind == "flow":
            return [self._flow.pid] if self._flow.poll() is None else []
        word = _PROCESSES[kind]
        found = []
        for pid in marked_processes(f"CHAOS={self.folder}"):
            with suppress(psutil.Error):
                command = psutil.Process(pid).cmdline()
                # A script's name is among the arguments, a module's behind -m; a supervisor that
                # forks its trainer looks like itself for a moment.
                if any(one.startswith(word) for one in command):
                    found.append(pid)
        return sorted(found)

    def kill(self, kind: str, draw: random.Random) -> bool:
        """Kill (SIGKILL) one of a kind; a server comes back some seconds later."""
        if kind in SERVERS:
            return self._kill_server(kind, draw.uniform(0.0, 4.0))
        found = self.processes(kind)
        if not found:
            return False
        with suppress(ProcessLookupError):
            os.kill(draw.choice(found), signal.SIGKILL)
        if kind == "flow":
            assert self._flow is not None
            self._flow.wait()
        return True

    def _kill_server(self, kind: str, pause: float) -> bool:
        returning = self._returning.get(kind)
        if returning is not None and returning.is_alive():
            return False
        if kind == "SeaweedFS":
            assert self._s3 is not None
            self._s3.kill()
        else:
            server = self._mlflow if kind == "MLflow server" else self._prefect
            assert server is not None
            stop_server(server, grace=0.0)
        self._returning[kind] = Thread(target=self._bring_back, args=(kind, pause))
        self._returning[kind].start()
        return True

    def _bring_back(self, kind: str, pause: float) -> None:
        time.sleep(pause)
        if kind == "SeaweedFS":
            assert self._s3 is not None
            self._s3.restart()
        elif kind == "MLflow server":
            self._mlflow = self._start_mlflow()
        else:
            self._prefect = self._start_prefect()

    def await_servers(self) -> None:
        """Wait until all servers that were killed are back."""
        for thread in self._returning.values():
            thread.join()

    # Looking.

    def progress(self) -> int:
        """Return how many steps all trainings have taken, as far as was seen."""
        places = spools() if self.remote else runs_in(self.folder / "runs" / self.name)
        for place in places:
            with suppress(FileNotFoundError):
                beat = read_record(LocalStorage(place), Heartbeat, key=heartbeat_key(0))
                if beat is not None:
                    self._steps[str(place)] = beat.last_step + 1
        return sum(self._steps.values())

    def left(self) -> list[int]:
        """Return the processes that descend from any flow and live."""
        return [*marked_processes(f"CHAOS={self.folder}")]

    def mlflow_runs(self) -> dict[str, str]:
        """Return the status of each run that MLflow has of this sweep, by name."""
        done = subprocess.run(
            [sys.executable, "-c", _READ_MLFLOW, self._tracking_uri, self.name],
            check=True,
            capture_output=True,
            text=True,
        )
        found: dict[str, str] = json.loads(done.stdout)
        return found

    def trials(self) -> Any:
        """Return the trials of the sweep, as its journal has them."""
        sweep = self.sweep
        study = sweep.study(sweep.state / JOURNAL)
        try:
            return study.trials()
        finally:
            study.close()

    def whole(self, size: Size) -> bool:
        """Say whether all trials have finished, each with all of its values."""
        trials = self.trials()
        epochs = range(1, size.epochs + 1)
        return len(trials) == size.trials and all(
            trial.ending.state == "finished"
            and dict(trial.values) == {one: accuracy(trial.parameters["x"], one) for one in epochs}
            for trial in trials
        )

    def finished_runs(self) -> list[str]:
        """Return the names of the runs that came to their end."""
        self.await_servers()
        runs = [open_run(place) for place in runs_in(self.sweep_store())]
        return [run.info.name for run in runs if run.status.state == "finished"]

    def broken_off(self) -> Iterator[BrokenOff]:
        """Yield the runs that another one took the place of."""
        for trial in self.trials():
            begun: dict[str, int] = {}
            before: Run | None = None
            for location in runs_of_trial(self.sweep_store(), trial.name):
                run = open_run(location)
                name = run.info.name
                given = run.info.parameters.get("resume")
                saved = SavedCheckpoint.at(given) if given else None
                begun[name] = begun[saved.run] + saved.steps if saved else 0
                if before is not None:
                    stored = begun[before.info.name] + len(before.steps("train"))
                    state = before.status.state
                    yield BrokenOff(before.info.name, state, stored, begun[name])
                before = run

    # Servers.

    @property
    def _store(self) -> str:
        return f"s3://{BUCKET}/runs" if self.remote else "runs"

    @property
    def _tracking_uri(self) -> str:
        return self._mlflow.url if self._mlflow else f"sqlite:///{self.folder}/mlflow.db"

    def _start_mlflow(self) -> LocalServer:
        return start_mlflow_ui(f"sqlite:///{self.folder}/mlflow.db", port=self._mlflow_port)

    def _start_prefect(self) -> LocalServer:
        url = f"http://127.0.0.1:{self._prefect_port}"
        return start_server(
            "Prefect's server",
            [
                *(sys.executable, "-m", "prefect", "server", "start", "--no-services", "--no-ui"),
                *("--host", "127.0.0.1", "--port", str(self._prefect_port)),
            ],
            url,
            lambda: _answers(f"{url}/api/health"),
            timeout=240.0,
            environment={"PREFECT_HOME": str(self.folder / "prefect-server")},
        )


def _answers(url: str) -> bool:
    try:
        with urllib.request.urlopen(url, timeout=2.0) as answer:
            return bool(answer.status == 200)
    except (OSError, urllib.error.URLError):
        return False
