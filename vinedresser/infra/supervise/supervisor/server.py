"""A process that forks supervisors.

    python -m vinedresser.infra.supervise.supervisor.server SOCKET

Starting a Python process for each supervisor would take half as long as a short trial. Each message
on the socket is a run directory, with three descriptors: its lock, a file in memory with the
arguments and environment of the program, and a channel on which the supervisor gets signals, and
which it closes once it has written the exit record and released the lock. This process ends with
the other end of the socket; the supervisors do not.
"""

from __future__ import annotations

import os
import socket
import sys
from collections.abc import Sequence
from contextlib import suppress

from vinedresser.foreign_signals import handle_foreign
from vinedresser.infra.supervise.supervisor.__main__ import main as supervise

_LONGEST_PATH = 4096


def main(arguments: Sequence[str]) -> int:
    """Fork a supervisor for each message until the socket is closed; return the exit code.

    Args:
        arguments: descriptor of the socket.
    """
    handle_foreign()
    requests = socket.socket(fileno=int(arguments[0]))
    while True:
        directory, descriptors, _, _ = socket.recv_fds(requests, _LONGEST_PATH, 3)
        if not directory:
            return 0
        _reap()
        lock, values, channel = descriptors
        if os.fork() == 0:
            # Otherwise a message could be sent to a server that is dead.
            requests.close()
            os.setsid()
            code = supervise([os.fsdecode(directory), *map(str, (lock, values, channel))])
            # In this order: who awaited the end may settle the run, which needs the lock.
            os.close(lock)
            os.close(channel)
            return code
        for descriptor in descriptors:
            os.close(descriptor)


def _reap() -> None:
    """Reap supervisors that have ended."""
    with suppress(ChildProcessError):
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
