"""Notes of the servers that run until they are stopped, one file per kind of server."""

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
from vinedresser.infra.state_folder import private_folder, state_folder
from vinedresser.processes import ProcessIdentity, is_alive, kill_group, wait_for_end

__all__ = ["Note", "end_group", "opened_note", "usual_port"]


class Note:
    """An open note, locked against other processes.

    Args:
        file: descriptor of the file.
    """

    def __init__(self, file: int) -> None:
        self._file = file

    def read(self) -> dict[str, Any] | None:
        """Return the content; None if the note is empty."""
        text = os.pread(self._file, 1 << 16, 0)
        return dict(json.loads(text)) if text else None

    def write(self, content: dict[str, Any] | None) -> None:
        """Replace the content; None empties the note."""
        os.ftruncate(self._file, 0)
        if content is not None:
            os.pwrite(self._file, json.dumps(content).encode(), 0)


@contextmanager
def opened_note(name: str) -> Iterator[Note]:
    """Open and lock a note that only this user can read.

    Args:
        name: the kind of server.
    """
    folder = private_folder(state_folder())
    file = os.open(folder / f"{name}.json", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield Note(file)
    finally:
        os.close(file)


def usual_port(port: int | None, usual: int, who: str) -> int:
    """Return the requested port, or else the usual one if it is free, or else 0.

    Args:
        port: the requested port, if any.
        usual: the well-known port of such a server.
        who: the server's name in messages.
    """
    if port is not None:
        return port
    try:
        return free_port("127.0.0.1", usual, who)
    except LaunchError:
        return 0


def end_group(leader: dict[str, Any], grace: float) -> None:
    """Stop a process and its group: SIGTERM, then SIGKILL.

    Args:
        leader: identity of the process.
        grace: seconds between the two signals.
    """
    identity = ProcessIdentity(**leader)
    if is_alive(identity):
        with suppress(ProcessLookupError):
            os.kill(identity.pid, signal.SIGTERM)
        wait_for_end(identity, grace)
    kill_group(identity)
    wait_for_end(identity, grace)
