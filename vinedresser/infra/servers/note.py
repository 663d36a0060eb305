"""The note of what stays on this machine until it is stopped, one file for each kind of server."""

from __future__ import annotations

import fcntl
import json
import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

from vinedresser.errors import LaunchError
from vinedresser.infra.servers.local_server import free_port
from vinedresser.infra.state_folder import state_folder
from vinedresser.processes import ProcessIdentity, is_alive, kill_group, wait_for_end

__all__ = ["Note", "end_group", "opened_note", "usual_port"]


class Note:
    """An open note; nobody else changes it meanwhile.

    Args:
        file: its descriptor.
    """

    def __init__(self, file: int) -> None:
        self._file = file

    def read(self) -> dict[str, Any] | None:
        """Return what it says; None when it says nothing."""
        text = os.pread(self._file, 1 << 16, 0)
        return dict(json.loads(text)) if text else None

    def write(self, content: dict[str, Any] | None) -> None:
        """Have it say something else, or nothing."""
        os.ftruncate(self._file, 0)
        if content is not None:
            os.pwrite(self._file, json.dumps(content).encode(), 0)


@contextmanager
def opened_note(name: str) -> Iterator[Note]:
    """Open a note that only this user can read.

    Args:
        name: of the kind of server.
    """
    folder = state_folder()
    folder.mkdir(parents=True, exist_ok=True)
    file = os.open(folder / f"{name}.json", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield Note(file)
    finally:
        os.close(file)


def usual_port(port: int | None, usual: int, who: str) -> int:
    """Return the port to ask for: the one that is wanted, or the usual one if that is free, or 0.

    Args:
        port: the one that is wanted, if any.
        usual: the one by which such a server is known.
        who: wants to listen there, for messages.
    """
    if port is not None:
        return port
    try:
        return free_port("127.0.0.1", usual, who)
    except LaunchError:
        return 0


def end_group(leader: dict[str, Any], grace: float) -> None:
    """End a process with its group: ask (SIGTERM), then kill.

    Args:
        leader: identity of the process.
        grace: seconds between asking and killing.
    """
    identity = ProcessIdentity(**leader)
    if is_alive(identity):
        with suppress(ProcessLookupError):
            os.kill(identity.pid, signal.SIGTERM)
        wait_for_end(identity, grace)
    kill_group(identity)
    wait_for_end(identity, grace)
