"""Where the agent of a training listens, and who may talk to it."""

from __future__ import annotations

import hashlib
import os
import socket
import stat
import struct
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from vinedresser.errors import AgentAway

__all__ = ["agent_folder", "agent_name", "opened_folder", "peer_is_this_user"]

_CREDENTIALS = struct.Struct("3i")


def agent_folder() -> Path:
    """Return the folder of the sockets of this user, which nobody else can open.

    It is not in the run directory: whoever writes there could place a socket.
    """
    state = os.environ.get("XDG_STATE_HOME") or os.path.expanduser("~/.local/state")
    return Path(state, "vinedresser", "agents")


def agent_name(location: str, rank: int) -> str:
    """Return the name of the socket of a training, the same for all spellings of its location."""
    where = location.rstrip("/") if "://" in location else os.path.realpath(location)
    # A home folder may be shared by several machines.
    text = "\0".join((socket.gethostname(), str(os.getuid()), where, str(rank)))
    return f"{hashlib.sha256(text.encode()).hexdigest()[:24]}.sock"


@contextmanager
def opened_folder(*, create: bool = False) -> Iterator[str]:
    """Open the folder; yield a short path to it, which keeps leading to it.

    The paths of sockets are limited to about 100 bytes.

    Args:
        create: create the folder if it is missing.

    Raises:
        AgentAway: it is missing, or other users could open it.
    """
    folder = agent_folder()
    try:
        if create:
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        number = os.open(folder, os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    except OSError as error:
        raise AgentAway(f"{folder}: {error.strerror}") from error
    try:
        found = os.fstat(number)
        if found.st_uid != os.getuid() or stat.S_IMODE(found.st_mode) & 0o077:
            raise AgentAway(f"{folder}: must belong to this user, with mode 0700")
        yield f"/proc/self/fd/{number}"
    finally:
        os.close(number)


def peer_is_this_user(connection: socket.socket) -> bool:
    """Return whether the process at the other end of a Unix socket is of this user."""
    raw = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
    _, user, _ = _CREDENTIALS.unpack(raw)
    return bool(user == os.getuid())
