"""A Prefect server for one flow process: on loopback, with a password, and gone when it ends.

Prefect would start one of its own during the flow: in the terminal's process group, where Ctrl-C
kills it before the flow, without a password, and only after everything else has been imported. This
one starts at once and in its own session, and each process has its own, so that several flows on
one store do not share a database.
"""

from __future__ import annotations

import atexit
import fcntl
import json
import os
import secrets
import select
import shutil
import socket
import subprocess
import sys
import tempfile
import threading
import time
import urllib.error
import urllib.request
from dataclasses import asdict
from pathlib import Path

from vinedresser.errors import LaunchError, StoreError
from vinedresser.foreign_signals import holding_foreign
from vinedresser.infra.catalog.state_folder import private_folder, state_folder
from vinedresser.infra.services.servers.local_server import LocalServer, end_of_output, stop_server
from vinedresser.processes import this_process

__all__ = ["PrivatePrefect", "is_private", "start_private_prefect"]

_HOST, _WHO = "127.0.0.1", "Prefect's private server"
# Creating the database takes five seconds of a core, and a machine may be busy.
_START = 240.0
# Seconds that it may take for an answer, as many as its client waits; and between two looks.
_HANGS, _LOOK = 60.0, 10.0
# Addresses of the servers that this process started.
_addresses: set[str] = set()


class PrivatePrefect:
    """A server that may still be starting.

    Args:
        server: its process.
        folder: folder of its files, which is removed with it.
        lock: descriptor of the folder's lock.
        ready: descriptor of a pipe that gets a byte when it serves, and is closed when it ends.
        password: ``user:password``.

    Attributes:
        pid: id of its process.
        home: folder of its files, which Prefect's client may use, too.
    """

    def __init__(
        self, server: LocalServer, folder: Path, lock: int, ready: int, password: str
    ) -> None:
        self._server = server
        self._lock = lock
        self._ready = ready
        self._password = password
        self.pid = server.process.pid
        self.home = folder

    def environment(self) -> dict[str, str]:
        """Return the environment variables with its address and credentials."""
        return {
            "PREFECT_API_URL": f"{self._server.url}/api",
            "PREFECT_API_AUTH_STRING": self._password,
        }

    def wait(self) -> None:
        """Wait until it serves.

        Raises:
            LaunchError: it ended or did not start in time; the message has the end of its output.
        """
        # Not select, which is limited to descriptors up to 1023.
        poll = select.poll()
        poll.register(self._ready, select.POLLIN)
        if not poll.poll(_START * 1000):
            raise LaunchError(f"{_WHO} did not start within {_START:g} s: {self._said()}")
        if not os.read(self._ready, 1):
            code = self._server.process.wait()
            raise LaunchError(f"{_WHO} ended with code {code}: {self._said()}")

    def watch(self) -> None:
        """Kill it, from a thread of this process, once it does not answer any more.

        A client would wait minutes for each answer of a server that hangs; one that is gone refuses
        at once.
        """
        threading.Thread(target=self._kill_if_it_hangs, name="prefect-watch", daemon=True).start()

    def stop(self) -> None:
        """Kill it and remove its files: nothing in them is needed any longer."""
        atexit.unregister(self.stop)
        stop_server(self._server, grace=0.0)
        shutil.rmtree(self.home, ignore_errors=True)
        os.close(self._lock)
        os.close(self._ready)

    def _kill_if_it_hangs(self) -> None:
        opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
        while self._server.process.poll() is None:
            try:
                opener.open(f"{self._server.url}/api/health", timeout=_HANGS).close()
            except urllib.error.HTTPError:
                # An answer, too.
                pass
            except OSError:
                # It has ended, or did not answer.
                stop_server(self._server, grace=0.0)
                return
            time.sleep(_LOOK)

    def _said(self) -> str:
        with _log(self.home).open("rb") as output:
            return end_of_output(output)


def is_private(url: str) -> bool:
    """Return whether an address is that of a server which this process has started for itself.

    Args:
        url: the address of the API.
    """
    return url in _addresses


def start_private_prefect() -> PrivatePrefect:
    """Start a server, which stops with this process in any case; do not wait for it.

    Its address accepts connections at once; they are answered when it serves.

    Raises:
        StoreError: the folder for its files cannot be created.
    """
    folder, lock = _own_folder()
    password = f"vinedresser:{secrets.token_urlsafe(24)}"
    ready, serves = os.pipe()
    with socket.create_server((_HOST, 0)) as listening:
        url = f"http://{_HOST}:{listening.getsockname()[1]}"
        command = [
            *(sys.executable, "-P", "-m", "vinedresser.infra.services.servers.prefect_process"),
            *("--folder", str(folder), "--owner", json.dumps(asdict(this_process()))),
            *("--socket", str(listening.fileno()), "--ready", str(serves)),
        ]
        try:
            with _log(folder).open("wb") as log, holding_foreign():
                process = subprocess.Popen(
                    command,
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=subprocess.STDOUT,
                    env=_environment(password),
                    pass_fds=(lock, listening.fileno(), serves),
                    start_new_session=True,
                )
        finally:
            os.close(serves)
    server = PrivatePrefect(LocalServer(process, url), folder, lock, ready, password)
    _addresses.add(f"{url}/api")
    # Prefect, which is imported later, sends its last events before this.
    atexit.register(server.stop)
    return server


def _environment(password: str) -> dict[str, str]:
    """Return the server's environment; the user's settings of Prefect are for other servers."""
    inherited = {name: value for name, value in os.environ.items() if name[:8] != "PREFECT_"}
    return {**inherited, "PREFECT_SERVER_API_AUTH_STRING": password}


def _log(folder: Path) -> Path:
    return folder / "server.log"


def _own_folder() -> tuple[Path, int]:
    """Make a folder that only this user can enter, and lock it.

    Returns:
        The folder, and the descriptor of its lock. The lock is free once this process and its
        server have ended; then the next call removes the folder, if that did not happen before.
    """
    root = private_folder(private_folder(state_folder()) / "prefect")
    try:
        gate = _locked(root / "lock", wait=True)
        try:
            for left in root.glob("flow-*"):
                _remove_unless_in_use(left)
            folder = Path(tempfile.mkdtemp(prefix="flow-", dir=root))
            return folder, _locked(folder / "lock", wait=True)
        finally:
            os.close(gate)
    except OSError as error:
        raise StoreError(f"{root}: cannot be written: {error.strerror}") from error


def _remove_unless_in_use(folder: Path) -> None:
    try:
        lock = _locked(folder / "lock", wait=False)
    except BlockingIOError:
        return
    shutil.rmtree(folder, ignore_errors=True)
    os.close(lock)


def _locked(path: Path, *, wait: bool) -> int:
    """Open and lock a file; return the descriptor, which holds the lock.

    Raises:
        BlockingIOError: another process holds it, and `wait` is not set.
    """
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
    except BaseException:
        os.close(descriptor)
        raise
    return descriptor
