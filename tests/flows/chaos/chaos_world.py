"""A sweep with its servers, each in processes of its own that can be killed at any moment."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path, PurePath
from typing import Any, NamedTuple

import psutil

from tests.cli.terminal import Terminal
from tests.flows.chaos.chaos_servers import Servers
from tests.flows.chaos.chaos_trainer import EPOCH, accuracy
from tests.waiting import until
from tests.warm_python import COMMANDS
from vinedresser.objects import LocalStorage, Location
from vinedresser.processes import marked_processes
from vinedresser.store.reading.reader import Run, open_run
from vinedresser.store.reading.store_runs import runs_in
from vinedresser.store.records import Heartbeat, heartbeat_key, read_record
from vinedresser.store.spool import spools
from vinedresser.tasks.config.sweep_file import Sweep, load_sweep
from vinedresser.tasks.lifecycle.earlier_runs import runs_of_trial
from vinedresser.tasks.places.checkpoints import SavedCheckpoint
from vinedresser.testing.s3_server import BUCKET

__all__ = ["SCRIPT", "BrokenOff", "Size", "World", "until"]

SCRIPT = Path(__file__).with_name("chaos_trainer.py")
# By what a process is known by its command line.
_PROCESSES = {
    "supervisor": "vinedresser.infra.supervise.supervisor",
    "guard": "vinedresser.infra.guard",
    "judge": "vinedresser.rules.",
    "relay": "vinedresser.infra.supervise.relay",
    "trainer": str(SCRIPT),
    "embedded server": "vinedresser.infra.services.servers.prefect_process",
}

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
ranks = {ranks}
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
        terminal: flows run in a terminal.
        ranks: number of processes of each trial.

    Attributes:
        folder: for all files.
        remote: the sweep's runs are on S3.
        servers: see above.
        name: name of the current sweep.
        environment: variables by which the servers are found.
        marker: variable that marks all processes of flows.
        backends: the servers.
    """

    def __init__(
        self,
        folder: Path,
        *,
        remote: bool,
        servers: bool,
        terminal: bool = False,
        ranks: int = 1,
    ) -> None:
        self.folder = folder
        self.remote = remote
        self.servers = servers
        self._in_terminal = terminal
        self._ranks = ranks
        self._terminal: Terminal | None = None
        self.marker = {"CHAOS": f"{folder}"}
        self.backends = Servers(folder, remote=remote, central=servers)
        self._flow: subprocess.Popen[bytes] | None = None
        self._steps: dict[str, int] = {}
        self.name = ""
        self.file = folder / "sweep.toml"
        self.environment = {
            **self.backends.environment,
            "PREFECT_HOME": str(folder / "prefect-client"),
            "VINEDRESSER_SPOOL": str(folder / "spool"),
        }
        os.environ |= self.environment

    def close(self) -> None:
        """End all processes."""
        self.backends.wait()
        for pid in marked_processes(f"CHAOS={self.folder}"):
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        self._close_terminal()
        self.backends.close()
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
            ranks=self._ranks,
            store=self._store,
            mlflow=self.tracking_uri,
        )
        self.file.write_text(text, encoding="utf-8")

    @property
    def sweep(self) -> Sweep:
        """The sweep, as its file says."""
        return load_sweep(self.file)

    # The flow.

    def start(self, *arguments: str) -> None:
        """Start the flow."""
        self._close_terminal()
        if self._in_terminal:
            self._terminal = Terminal(
                "sweep",
                str(self.file),
                *arguments,
                cwd=self.folder,
                environment=self.marker,
            )
            self._flow = self._terminal.process
            return
        self._flow = self.begin("sweep", str(self.file), *arguments)

    def begin(self, *arguments: str) -> subprocess.Popen[bytes]:
        """Start a command of vinedresser in a session of its own, and return its process."""
        with (self.folder / "flow.log").open("ab") as log:
            return subprocess.Popen(
                [sys.executable, "-m", "vinedresser", *arguments],
                cwd=self.folder,
                stdout=log,
                stderr=log,
                env={**os.environ, **self.marker},
                start_new_session=True,
            )

    def interrupt(self) -> int:
        """Press Ctrl-C in the flow's terminal, and return its exit code."""
        assert self._terminal is not None
        self._terminal.type("\x03")
        return self._terminal.process.wait()

    def _close_terminal(self) -> None:
        """Append what was printed in the terminal of a flow that has ended to the log."""
        if self._terminal is None:
            return
        terminal, self._terminal = self._terminal, None
        with (self.folder / "flow.log").open("a", encoding="utf-8") as log:
            log.write(terminal.output())

    def go_on(self) -> None:
        """Start the flow again, after the one before has ended."""
        self.start(*(["--resume"] if self.sweep.has_begun else []))

    @property
    def code(self) -> int | None:
        """The flow's exit code; None while it lives."""
        assert self._flow is not None
        return self._flow.poll()

    def said(self) -> str:
        """Return the end of what the flows, which have ended, printed."""
        self._close_terminal()
        return (self.folder / "flow.log").read_text(encoding="utf-8", errors="replace")[-6000:]

    def reconcile(self) -> subprocess.CompletedProcess[str]:
        """Run `vinedresser reconcile` on the store in which the sweep has its own."""
        return subprocess.run(
            [sys.executable, "-m", "vinedresser", "reconcile", self._store],
            cwd=self.folder,
            capture_output=True,
            text=True,
            check=False,
            env={**os.environ, **self.marker},
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
        """Kill (SIGKILL) one of a kind; return False if there is none."""
        found = self.processes(kind)
        if not found:
            return False
        with suppress(ProcessLookupError):
            os.kill(draw.choice(found), signal.SIGKILL)
        if kind == "flow":
            assert self._flow is not None
            self._flow.wait()
        return True

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

    def supervised(self) -> set[str]:
        """Return the names of the runs that train under a living supervisor.

        A run whose supervisor was killed a moment ago still looks as if it trained.
        """
        supervisors = self.processes("supervisor")
        found = set()
        for pid in self.processes("trainer"):
            with suppress(psutil.Error, KeyError):
                trainer = psutil.Process(pid)
                if trainer.ppid() in supervisors:
                    found.add(PurePath(trainer.environ()["VINEDRESSER_RUN"]).name)
        return found

    def states(self) -> dict[str, str]:
        """Return the states of the sweep's runs by the names of their folders."""
        return {place.name: open_run(place).status.state for place in runs_in(self.sweep_store())}

    def mlflow_runs(self, experiment: str = "") -> dict[str, str]:
        """Return the status of each run of an experiment in MLflow, by name; "": the sweep's."""
        words = ["-c", _READ_MLFLOW, self.tracking_uri, experiment or self.name]
        done = COMMANDS.run(words, self.folder, os.environ)
        assert done.returncode == 0, done.stderr
        found: dict[str, str] = json.loads(done.stdout)
        return found

    def trials(self) -> Any:
        """Return the trials of the sweep, as its journal has them."""
        sweep = self.sweep
        study = sweep.study(sweep.lock)
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
            and dict(trial.values)
            == {epoch: accuracy(trial.parameters["x"], epoch) for epoch in epochs}
            for trial in trials
        )

    def finished_runs(self) -> list[str]:
        """Return the names of the runs that came to their end."""
        self.backends.wait()
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
    def tracking_uri(self) -> str:
        """Where MLflow keeps the runs."""
        return self.backends.tracking_uri
