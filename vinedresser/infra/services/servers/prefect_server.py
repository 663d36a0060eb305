"""Prefect's standing server and worker: `vinedresser up` and `down`.

Anyone who reaches the server can have the worker start any program as its user. So the server
listens on loopback only and asks for a password that only that user can read.
"""

from __future__ import annotations

import os
import secrets
import signal
import sys
import uuid
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

from vinedresser.errors import ConfigError, LaunchError
from vinedresser.infra.services.servers.flow_runs import end_worker
from vinedresser.infra.services.servers.local_server import (
    LocalServer,
    free_port,
    start_server,
    stop_server,
)
from vinedresser.infra.services.servers.note import (
    Note,
    end_group,
    first_marked,
    mark_variable,
    opened_note,
    read_note,
    usual_port,
)
from vinedresser.infra.services.servers.prefect_api import ask_prefect
from vinedresser.processes import ProcessIdentity, identify, is_alive

__all__ = [
    "WORK_POOL",
    "StandingPrefect",
    "bring_up_prefect",
    "default_home",
    "noted_prefect",
    "standing_prefect",
    "take_down_prefect",
]

# The work pool of vinedresser's worker.
WORK_POOL = "vinedresser"

_HOST, _PORT, _WHO, _NOTE = "127.0.0.1", 4200, "Prefect's server", "prefect"
_PREFECT = (sys.executable, "-m", "prefect")
_LEASES = "prefect.server.concurrency.lease_storage.filesystem"
_ENVIRONMENT = {
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
        mark: marks the processes of a server or worker that was about to start, see
            `mark_variable`; their identity is not known if `vinedresser up` was killed meanwhile.
    """

    server: dict[str, Any]
    worker: dict[str, Any]
    url: str
    home: str
    password: str
    limit: int
    mark: str = ""

    @property
    def server_log(self) -> Path:
        """Log of the server."""
        return Path(self.home, "server.log")

    @property
    def server_lives(self) -> bool:
        """Whether the server's process is alive."""
        return _lives(self.server)

    @property
    def worker_lives(self) -> bool:
        """Whether the worker's process is alive."""
        return _lives(self.worker)

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
    say: Callable[[str], object] = lambda _: None,
    before_work: Callable[[StandingPrefect], object] = lambda _: None,
) -> StandingPrefect:
    """Start the standing server and its worker, or return those that are running.

    If only one of them has ended, it alone is started. Unless `take_down_prefect` stopped it, a
    server keeps its address and password, so that running flows reach it again.

    Args:
        home: folder of the server's files; None: `default_home`.
        port: port to listen on; None: 4200, or a free one if that is in use.
        limit: maximum number of concurrent flow runs over all deployments.
        environment: variables for flow runs, added to the inherited ones.
        say: is called with a sentence about a server or worker that was left unfinished, and ended.
        before_work: is called after an outage, when the server runs again and no worker does yet.

    Raises:
        ConfigError: a server with other settings is already running.
        LaunchError: one of them could not be started.
    """
    with opened_note(_NOTE) as note:
        noted = _noted(note)
        if noted is not None and _end_unfinished(noted):
            say(f"ended the Prefect server or worker at {noted.url} that was left unfinished")
        if noted is not None and _lives(noted.server, noted.worker):
            _check_same(noted, home, port, limit)
        else:
            noted = _settings((home or default_home()).absolute(), port, limit, noted)
        return _complete(note, noted, environment or {}, before_work)


def take_down_prefect() -> StandingPrefect | None:
    """Stop the worker, whose flow runs save checkpoints, and the server; None if none runs."""
    with opened_note(_NOTE) as note:
        noted = _noted(note)
        if noted is None:
            return None
        unfinished = _end_unfinished(noted)
        running = _lives(noted.server, noted.worker)
        if running:
            _end(noted.server, noted.worker, noted)
        note.write(None)
        return noted if running or unfinished else None


def noted_prefect() -> StandingPrefect | None:
    """Return the server that was started and not stopped, which may have ended; None for none.

    Unlike `standing_prefect`, it does not wait for one that is being started.
    """
    said = read_note(_NOTE)
    return None if said is None else StandingPrefect(**said)


def standing_prefect() -> StandingPrefect | None:
    """Return the running server; None if there is none."""
    with opened_note(_NOTE) as note:
        noted = _noted(note)
        return noted if noted is not None and _lives(noted.server) else None


def _end_unfinished(noted: StandingPrefect) -> bool:
    """End a server or worker whose start was not completed; return whether there was one."""
    worker = {} if noted.worker else first_marked(f"{noted.mark}-worker", "worker")
    server = {} if noted.server else first_marked(f"{noted.mark}-server", "server")
    _end(server, worker, noted)
    return bool(worker or server)


def _end(server: dict[str, Any], worker: dict[str, Any], noted: StandingPrefect) -> None:
    """End a worker with its flow runs, then a server, as far as they are given."""
    if worker:
        ask = partial(ask_prefect, noted.url, noted.password)
        end_worker(ProcessIdentity(**worker), ask, _FLOW_GRACE)
    if server:
        end_group(server, _SERVER_GRACE)


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


def _complete(
    note: Note,
    standing: StandingPrefect,
    environment: Mapping[str, str],
    before_work: Callable[[StandingPrefect], object],
) -> StandingPrefect:
    """Start the server or the worker or both, as far as they do not run; note each step."""
    started: list[LocalServer] = []
    outage = not (standing.server_lives and standing.worker_lives)
    try:
        with _suspended(standing.worker, outage):
            if not standing.server_lives:
                standing = _noted_start(note, replace(standing, server={}))
                started.append(_start_server(standing))
                standing = replace(standing, server=_identity(started[-1]))
            if outage:
                before_work(standing)
        if not standing.worker_lives:
            standing = _noted_start(note, replace(standing, worker={}))
            started.append(_start_worker(standing, environment))
            standing = replace(standing, worker=_identity(started[-1]))
        note.write(asdict(standing))
    except BaseException:
        for server in started:
            stop_server(server)
        raise
    for server in started:
        # They outlive this process: suppress the ResourceWarning of Popen.
        server.process.returncode = 0
    return standing


@contextmanager
def _suspended(worker: dict[str, Any], outage: bool) -> Iterator[None]:
    """Keep a living worker from starting flow runs meanwhile, if there was an outage.

    It continues in any case: an earlier `vinedresser up` may have been killed meanwhile.
    """
    if not _lives(worker):
        yield
        return
    if outage:
        os.kill(worker["pid"], signal.SIGSTOP)
    try:
        yield
    finally:
        with suppress(ProcessLookupError):
            os.kill(worker["pid"], signal.SIGCONT)


def _noted_start(note: Note, standing: StandingPrefect) -> StandingPrefect:
    """Note that the parts without an identity are about to start; return what they start with."""
    standing = replace(standing, mark=uuid.uuid4().hex)
    note.write(asdict(standing))
    return standing


def _start_server(standing: StandingPrefect) -> LocalServer:
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
                **mark_variable(f"{standing.mark}-server"),
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
                **mark_variable(f"{standing.mark}-worker"),
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
