"""Notes of the servers that run until they are stopped, one file per kind of server."""

from __future__ import annotations

import fcntl
import json
import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict
from pathlib import Path
from typing import Any

from vinedresser.errors import CorruptData, LaunchError
from vinedresser.infra.catalog.state_folder import private_folder, state_folder
from vinedresser.infra.services.servers.local_server import free_port
from vinedresser.processes import (
    ProcessIdentity,
    identify,
    is_alive,
    kill_group,
    marked_processes,
    wait_for_end,
)
from vinedresser.store.json_values import DAMAGE, parse_json

__all__ = [
    "Note",
    "end_group",
    "first_marked",
    "mark_variable",
    "opened_note",
    "read_note",
    "usual_port",
]

# Marks the processes of a server from their start. Its value is noted before, so that one whose
# identity was not noted, since `vinedresser up` was killed, is recognised.
_MARK = "VINEDRESSER_UP"
_MOST_BYTES = 1 << 16


class Note:
    """An open note, locked against other processes.

    Args:
        file: descriptor of the file.
    """

    def __init__(self, name: str, file: int) -> None:
        self._name = name
        self._file = file

    def read(self) -> dict[str, Any] | None:
        """Return the content; None if the note is empty.

        Raises:
            CorruptData: it is damaged.
        """
        return _content(self._name, os.pread(self._file, _MOST_BYTES, 0))

    def write(self, content: dict[str, Any] | None) -> None:
        """Replace the content; None empties the note."""
        text = b"" if content is None else json.dumps(content).encode()
        # Whenever the process is killed, the note is the old or the new one, or has spaces behind.
        if text:
            os.pwrite(self._file, text.ljust(os.fstat(self._file).st_size), 0)
        os.ftruncate(self._file, len(text))


@contextmanager
def opened_note(name: str) -> Iterator[Note]:
    """Open and lock a note that only this user can read."""
    private_folder(state_folder())
    file = os.open(_file(name), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield Note(name, file)
    finally:
        os.close(file)


def read_note(name: str) -> dict[str, Any] | None:
    """Return the content of a note, without waiting for a server that is being started.

    Raises:
        CorruptData: it is damaged.
        OSError: it cannot be read.
    """
    note = _file(name)
    return _content(name, note.read_bytes()) if note.exists() else None


def _file(name: str) -> Path:
    return state_folder() / f"{name}.json"


def _content(name: str, text: bytes) -> dict[str, Any] | None:
    try:
        return dict(parse_json(text)) if text else None
    except DAMAGE as error:
        raise CorruptData(
            f"{_file(name)}: not the note of a server: {error}; end the server and delete the file"
        ) from error


def mark_variable(mark: str) -> dict[str, str]:
    """Return the variable that marks the processes of a server.

    Args:
        mark: unique for each start of a server, and noted before.
    """
    return {_MARK: mark}


def first_marked(mark: str, word: str) -> dict[str, Any]:
    """Return the identity of the first process of a server that was started with a mark.

    Args:
        mark: see `mark_variable`.
        word: an argument of its command, which those of other processes with the mark lack.

    Returns:
        {} if there is none.
    """
    found = [identify(pid) for pid in marked_processes(f"{_MARK}={mark}") if _has(pid, word)]
    living = [one for one in found if one is not None]
    return asdict(min(living, key=lambda one: (one.started, one.pid))) if living else {}


def _has(pid: int, word: str) -> bool:
    """Return whether the command of a process has an argument."""
    try:
        return word.encode() in Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
    except OSError:
        # It has just ended.
        return False


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
