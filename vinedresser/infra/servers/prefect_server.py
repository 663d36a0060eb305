"""Prefect's standing server and worker: `vinedresser up` and `down`.

Anyone who reaches the server can have the worker start any program as its user. So the server
listens on loopback only and asks for a password that only that user can read.
"""

from __future__ import annotations

import os
import secrets
import sys
import urllib.error
import urllib.request
from base64 import b64encode
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from vinedresser.errors import ConfigError, LaunchError
from vinedresser.infra.servers.local_server import LocalServer, free_port, start_server, stop_server
from vinedresser.infra.servers.note import Note, end_group, opened_note, usual_port
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
_ENVIRONMENT = {
    "DO_NOT_TRACK": "true",
    "PREFECT_SERVER_ANALYTICS_ENABLED": "false",
    "PREFECT_CLI_PROMPT": "false",
    # Seconds between two polls for scheduled flow runs.
    "PREFECT_WORKER_QUERY_SECONDS": "5",
}
# Creating the database takes 16 s of a core.
_SERVER_START, _WORKER_START = 240.0, 120.0
# The worker waits 30 s for the checkpoints of the flow runs that it stops.
_WORKER_GRACE, _SERVER_GRACE = 45.0, 10.0


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
        running = _running(note)
        if running is not None:
            _check_same(running, home, port, limit)
            if is_alive(ProcessIdentity(**running.worker)):
                return running
            # A server without its worker would run nothing: start both again.
            end_group(running.server, _SERVER_GRACE)
        folder = (home or default_home()).absolute()
        started = _start(folder, port, limit, environment or {})
        note.write(asdict(started))
        return started


def take_down_prefect() -> StandingPrefect | None:
    """Stop the worker, whose flow runs save checkpoints, and the server; None if none runs."""
    with opened_note(_NOTE) as note:
        running = _running(note)
        if running is not None:
            end_group(running.worker, _WORKER_GRACE)
            end_group(running.server, _SERVER_GRACE)
        note.write(None)
        return running


def standing_prefect() -> StandingPrefect | None:
    """Return the running server; None if there is none."""
    with opened_note(_NOTE) as note:
        return _running(note)


def _running(note: Note) -> StandingPrefect | None:
    """Return the server of the note if it is running."""
    said = note.read()
    if said is None:
        return None
    standing = StandingPrefect(**said)
    return standing if is_alive(ProcessIdentity(**standing.server)) else None


def _check_same(running: StandingPrefect, home: Path | None, port: int | None, limit: int) -> None:
    other_home = home is not None and str(home.absolute()) != running.home
    other_port = port is not None and not running.url.endswith(f":{port}")
    if other_home or other_port or limit != running.limit:
        raise ConfigError(
            f"a Prefect server is already running at {running.url} in {running.home}, with at most "
            f"{running.limit} concurrent flow runs; stop it with `vinedresser down`"
        )


def _start(
    home: Path, port: int | None, limit: int, environment: Mapping[str, str]
) -> StandingPrefect:
    home.mkdir(parents=True, exist_ok=True, mode=0o700)
    number = free_port(_HOST, usual_port(port, _PORT, _WHO), _WHO)
    url, password = f"http://{_HOST}:{number}", f"vinedresser:{secrets.token_urlsafe(24)}"
    own = {**_ENVIRONMENT, "PREFECT_HOME": str(home)}
    with (home / "server.log").open("w+b") as output:
        server = start_server(
            _WHO,
            [*_PREFECT, "server", "start", "--host", _HOST, "--port", str(number)],
            url,
            lambda: _answers(url, password),
            timeout=_SERVER_START,
            environment={**own, "PREFECT_SERVER_API_AUTH_STRING": password},
            output=output,
        )
    try:
        standing = StandingPrefect(_identity(server), {}, url, str(home), password, limit)
        worker = _start_worker(standing, {**own, **environment, **standing.environment()})
    except BaseException:
        stop_server(server)
        raise
    # Both outlive this process: suppress the ResourceWarning of Popen.
    server.process.returncode = worker.process.returncode = 0
    return replace(standing, worker=_identity(worker))


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
            environment=environment,
            output=output,
        )


def _identity(server: LocalServer) -> dict[str, Any]:
    identity = identify(server.process.pid)
    if identity is None:
        raise LaunchError(f"{_WHO} or its worker at {server.url} has ended again")
    return asdict(identity)


def _answers(url: str, password: str) -> bool:
    """Return whether the server at an address is the one just started: it accepts the password."""
    credentials = b64encode(password.encode()).decode()
    request = urllib.request.Request(  # noqa: S310 - it is http, on loopback
        f"{url}/api/admin/version", headers={"Authorization": f"Basic {credentials}"}
    )
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    try:
        with opener.open(request, timeout=2.0) as answer:
            return bool(answer.status == 200)
    except (OSError, urllib.error.URLError):
        return False
