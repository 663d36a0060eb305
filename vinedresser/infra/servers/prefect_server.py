"""Prefect's standing server and worker: `vinedresser up` and `down`.

Anyone who reaches the server can have the worker start any program as its user. So the server
listens on loopback only and asks for a password that only that user can read.
"""

from __future__ import annotations

import os
import secrets
import sys
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

from vinedresser.errors import ConfigError, LaunchError
from vinedresser.infra.servers.flow_runs import end_worker
from vinedresser.infra.servers.local_server import LocalServer, free_port, start_server, stop_server
from vinedresser.infra.servers.note import Note, end_group, opened_note, usual_port
from vinedresser.infra.servers.prefect_api import ask_prefect
from vinedresser.processes import ProcessIdentity, identify, is_alive

__all__ = [
    "WORK_POOL",
    "StandingPrefect",
    "bring_up_prefect",
    "default_home",
    "standing_prefect",
    "take_down_prefect",
]

# The work pool of vinedresser's worker.
WORK_POOL = "vinedresser"

_HOST, _PORT, _WHO, _NOTE = "127.0.0.1", 4200, "Prefect's server", "prefect"
_PREFECT = (sys.executable, "-m", "prefect")
_LEASES = "prefect.server.concurrency.lease_storage.filesystem"
_ENVIRONMENT = {
    "DO_NOT_TRACK": "true",
    "PREFECT_SERVER_ANALYTICS_ENABLED": "false",
    "PREFECT_CLI_PROMPT": "false",
    # Leases in memory would be lost with the server: a run whose server or machine was restarted
    # would hold its deployment's only slot for ever, and no later run of it would start.
    "PREFECT_SERVER_CONCURRENCY_LEASE_STORAGE": _LEASES,
    # Seconds between two polls for scheduled flow runs.
    "PREFECT_WORKER_QUERY_SECONDS": "5",
}
# Creating the database takes 16 s of a core.
_SERVER_START, _WORKER_START = 240.0, 120.0
# A flow run has 30 s for its checkpoints, and a while to record them.
_FLOW_GRACE, _SERVER_GRACE = 45.0, 10.0


@dataclass(frozen=True)
class StandingPrefect:
    """A Prefect server and its worker on this machine.

    Attributes:
        server: identity of the server's first process, the leader of its group.
        worker: identity of the worker's first process.
        url: URL of the UI; the API is at ``URL/api``.
        home: absolute path of the folder with the server's database and both logs.
        password: ``user:password`` for the UI and the API.
        limit: maximum number of concurrent flow runs of the worker.
    """

    server: dict[str, Any]
    worker: dict[str, Any]
    url: str
    home: str
    password: str
    limit: int

    @property
    def server_log(self) -> Path:
        """Log of the server."""
        return Path(self.home, "server.log")

    def environment(self) -> dict[str, str]:
        """Return the environment variables with its address and credentials."""
        return {"PREFECT_API_URL": f"{self.url}/api", "PREFECT_API_AUTH_STRING": self.password}


def default_home() -> Path:
    """Return the default folder of the server's files."""
    shared = os.environ.get("XDG_DATA_HOME") or os.path.expanduser("~/.local/share")
    return Path(shared, "vinedresser", "prefect")


def bring_up_prefect(
    home: Path | None = None,
    *,
    port: int | None = None,
    limit: int = 1,
    environment: Mapping[str, str] | None = None,
) -> StandingPrefect:
    """Start the standing server and its worker, or return those that are running.

    If only one of them has ended, it alone is started. Unless `take_down_prefect` stopped it, a
    server keeps its address and password, so that running flows reach it again.

    Args:
        home: folder of the server's files; None: `default_home`.
        port: port to listen on; None: 4200, or a free one if that is in use.
        limit: maximum number of concurrent flow runs over all deployments.
        environment: variables for flow runs, added to the inherited ones.

    Raises:
        ConfigError: a server with other settings is already running.
        LaunchError: one of them could not be started.
    """
    with opened_note(_NOTE) as note:
        noted = _noted(note)
        if noted is not None and _lives(noted.server, noted.worker):
            _check_same(noted, home, port, limit)
        else:
            noted = _settings((home or default_home()).absolute(), port, limit, noted)
        standing = _complete(noted, environment or {})
        note.write(asdict(standing))
        return standing


def take_down_prefect() -> StandingPrefect | None:
    """Stop the worker, whose flow runs save checkpoints, and the server; None if none runs."""
    with opened_note(_NOTE) as note:
        noted = _noted(note)
        if noted is not None and not _lives(noted.server, noted.worker):
            noted = None
        if noted is not None:
            ask = partial(ask_prefect, noted.url, noted.password)
            end_worker(ProcessIdentity(**noted.worker), ask, _FLOW_GRACE)
            end_group(noted.server, _SERVER_GRACE)
        note.write(None)
        return noted


def standing_prefect() -> StandingPrefect | None:
    """Return the running server; None if there is none."""
    with opened_note(_NOTE) as note:
        noted = _noted(note)
        return noted if noted is not None and _lives(noted.server) else None


def _noted(note: Note) -> StandingPrefect | None:
    """Return the server of the note, which may have ended."""
    said = note.read()
    return None if said is None else StandingPrefect(**said)


def _lives(*processes: dict[str, Any]) -> bool:
    """Return whether one of the processes is alive."""
    return any(process and is_alive(ProcessIdentity(**process)) for process in processes)


def _check_same(running: StandingPrefect, home: Path | None, port: int | None, limit: int) -> None:
    other_home = home is not None and str(home.absolute()) != running.home
    other_port = port is not None and not running.url.endswith(f":{port}")
    if other_home or other_port or limit != running.limit:
        raise ConfigError(
            f"a Prefect server is already running at {running.url} in {running.home}, with at most "
            f"{running.limit} concurrent flow runs; stop it with `vinedresser down`"
        )


def _settings(
    home: Path, port: int | None, limit: int, earlier: StandingPrefect | None
) -> StandingPrefect:
    """Return what a server and a worker are to be started with.

    Args:
        home: folder of the server's files.
        port: the requested port, if any.
        limit: maximum number of concurrent flow runs.
        earlier: the last server, unless it was stopped.
    """
    password = f"vinedresser:{secrets.token_urlsafe(24)}"
    usual = _PORT
    if earlier is not None and earlier.home == str(home):
        password, usual = earlier.password, int(earlier.url.rpartition(":")[2])
    number = free_port(_HOST, usual_port(port, usual, _WHO), _WHO)
    return StandingPrefect({}, {}, f"http://{_HOST}:{number}", str(home), password, limit)


def _complete(standing: StandingPrefect, environment: Mapping[str, str]) -> StandingPrefect:
    """Start the server or the worker or both, as far as they do not run."""
    started: list[LocalServer] = []
    try:
        if not _lives(standing.server):
            started.append(_start_server(standing))
            standing = replace(standing, server=_identity(started[-1]))
        if not _lives(standing.worker):
            started.append(_start_worker(standing, environment))
            standing = replace(standing, worker=_identity(started[-1]))
    except BaseException:
        for server in started:
            stop_server(server)
        raise
    for server in started:
        # They outlive this process: suppress the ResourceWarning of Popen.
        server.process.returncode = 0
    return standing


def _start_server(standing: StandingPrefect) -> LocalServer:
    """Start the server."""
    home = Path(standing.home)
    home.mkdir(parents=True, exist_ok=True, mode=0o700)
    port = standing.url.rpartition(":")[2]
    with standing.server_log.open("w+b") as output:
        return start_server(
            _WHO,
            [*_PREFECT, "server", "start", "--host", _HOST, "--port", port],
            standing.url,
            lambda: _answers(standing.url, standing.password),
            timeout=_SERVER_START,
            environment={
                **_ENVIRONMENT,
                "PREFECT_HOME": standing.home,
                "PREFECT_SERVER_API_AUTH_STRING": standing.password,
                # Its pages would ask port 4200.
                "PREFECT_SERVER_UI_API_URL": f"{standing.url}/api",
            },
            output=output,
        )


def _start_worker(standing: StandingPrefect, environment: Mapping[str, str]) -> LocalServer:
    """Start a worker of vinedresser's pool, which is created if it does not exist."""
    log = Path(standing.home, "worker.log")
    words = ("worker", "start", "--pool", WORK_POOL, "--type", "process", "--install-policy")
    with log.open("w+b") as output:
        return start_server(
            "Prefect's worker",
            [*_PREFECT, *words, "never", "--limit", str(standing.limit)],
            standing.url,
            lambda: b"started!" in log.read_bytes(),
            timeout=_WORKER_START,
            environment={
                **_ENVIRONMENT,
                "PREFECT_HOME": standing.home,
                **environment,
                **standing.environment(),
            },
            output=output,
        )


def _identity(server: LocalServer) -> dict[str, Any]:
    identity = identify(server.process.pid)
    if identity is None:
        raise LaunchError(f"{_WHO} or its worker at {server.url} has ended again")
    return asdict(identity)


def _answers(url: str, password: str) -> bool:
    """Return whether the server at an address is the one just started: it accepts the password."""
    try:
        ask_prefect(url, password, "GET", "admin/version", timeout=2.0)
    except OSError:
        return False
    return True
