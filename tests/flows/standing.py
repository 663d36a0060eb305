"""A standing Prefect server as tests use it: commands, its API, and its logs."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.cli import command_line
from tests.paths import SCRIPTS
from tests.waiting import until
from tests.warm_python import COMMANDS
from vinedresser.infra.services.servers import StandingPrefect, standing_prefect
from vinedresser.infra.services.servers.prefect_api import ask_prefect

__all__ = ["Standing", "program", "vinedresser", "write_sweep"]

_SWEEP = f"""
[sweep]
metric = "accuracy"
direction = "maximize"
epochs = 2
pruner = "none"
sampler = "grid"

[space]
x = [0.1, 0.2]

[run]
name = "search"
command = ["python", "{SCRIPTS / "cluster_trainer.py"}"]
max_concurrent = 2
parameters = {{ epochs = 2, hold = "{{hold}}" }}

[rules]
preset = "none"
"""

_PROBLEM = re.compile(r"\| (ERROR|CRITICAL) +\||^Traceback \(most recent call last\)", re.MULTILINE)


def write_sweep(folder: Path) -> Path:
    """Write a sweep file; return the file during whose existence its trials do not end."""
    hold = folder / "hold"
    (folder / "sweep.toml").write_text(_SWEEP.replace("{hold}", str(hold)), encoding="utf-8")
    return hold


def program(folder: Path, *words: str, code: int = 0) -> str:
    """Run a Python module in a folder; return what it printed."""
    done = COMMANDS.run(["-m", *words], folder, {**os.environ, "COLUMNS": "200"})
    assert done.returncode == code, done.stdout + done.stderr
    return done.stdout + done.stderr


def vinedresser(folder: Path, *words: str, code: int | None = 0) -> str:
    """Run the command line in a folder; return what it printed."""
    done = command_line.vinedresser(*words, cwd=folder, columns=200, code=code)
    return done.stdout + done.stderr


@dataclass
class Standing:
    """The running server.

    Attributes:
        checks_logs: whether an error in a log fails the test.
    """

    checks_logs: bool = True
    _seen: dict[Path, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._seen = {log: log.stat().st_size for log in self._logs()}

    @property
    def server(self) -> StandingPrefect:
        """The server and the worker."""
        found = standing_prefect()
        assert found is not None
        return found

    def call(self, method: str, path: str, body: object = None) -> Any:
        """Send a request to the API."""
        server = self.server
        return ask_prefect(server.url, server.password, method, path, body, timeout=60.0)

    def deployment(self, name: str) -> dict[str, Any]:
        """Return a deployment, ``FLOW/NAME``."""
        found: dict[str, Any] = self.call("GET", f"deployments/name/{name}")
        return found

    def begin(self, name: str) -> str:
        """Ask for a run of a deployment; return the flow run's id."""
        place = f"deployments/{self.deployment(name)['id']}/create_flow_run"
        made: str = self.call("POST", place, {"state": {"type": "SCHEDULED"}})["id"]
        return made

    def runs(self, name: str) -> list[dict[str, Any]]:
        """Return the flow runs of a deployment, in the order in which they are due."""
        wanted = {"flow_runs": {"deployment_id": {"any_": [self.deployment(name)["id"]]}}}
        found: list[dict[str, Any]] = self.call("POST", "flow_runs/filter", wanted)
        return sorted(found, key=lambda run: str(run["expected_start_time"]))

    def state(self, flow_run: str) -> str:
        """Return the type of a flow run's state."""
        said: str = self.call("GET", f"flow_runs/{flow_run}")["state"]["type"]
        return said

    def await_state(self, flow_run: str, wanted: str) -> None:
        """Wait until a flow run is in a state."""
        until(lambda: self.state(flow_run) == wanted, f"flow run {wanted}", seconds=300.0)

    def artifacts(self, key: str) -> list[str]:
        """Return the texts of the artifacts with a key."""
        found = self.call("POST", "artifacts/filter", {"artifacts": {"key": {"any_": [key]}}})
        return [one["data"] for one in found]

    def problems(self) -> list[str]:
        """Return the errors in the logs of the server and the worker since the test began.

        That SQLite's database was locked for too long says that the machine is busy.
        """
        # Each entry begins with its time.
        entry = re.compile(r"^(?=\d\d:\d\d:\d\d\.\d{3} \| )", re.MULTILINE)
        return [
            one
            for log in self._logs()
            for one in entry.split(log.read_bytes()[self._seen.get(log, 0) :].decode())
            if _PROBLEM.search(one) and "database is locked" not in one
        ]

    def _logs(self) -> list[Path]:
        home = Path(self.server.home)
        return [home / "server.log", home / "worker.log"]
