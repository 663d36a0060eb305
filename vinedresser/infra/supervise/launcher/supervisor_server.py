"""The process that forks the supervisors of this process's trainings."""

from __future__ import annotations

import atexit
import os
import socket
import subprocess
import sys
import threading
from collections.abc import Mapping
from pathlib import Path

from vinedresser.foreign_signals import holding_foreign
from vinedresser.store.records import environment_without_run


class SupervisorServer:
    """Forks supervisors from a process that is started with the first of them.

    See `infra.supervise.supervisor.server`. Several threads may use it at the same time.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._process: _Process | None = None
        atexit.register(self.close)

    def fork(self, directory: Path, lock: int, values: int, channel: int) -> None:
        """Start the supervisor of a run.

        Args:
            directory: the run directory, absolute.
            lock: descriptor of its lock, which the caller closes.
            values: descriptor of a file in memory with its arguments and environment, which the
                caller closes.
            channel: descriptor on which it gets signals, which the caller closes. The supervisor
                closes it when it has written the exit record.
        """
        with self._lock:
            try:
                self._current().send(directory, lock, values, channel)
            except (BrokenPipeError, ConnectionResetError):
                # It was killed.
                self._end()
                self._current().send(directory, lock, values, channel)

    def close(self) -> None:
        """End the process; supervisors continue."""
        with self._lock:
            self._end()

    def _current(self) -> _Process:
        """Return the process; start it if there is none with this environment."""
        environment = environment_without_run()
        if self._process is not None and self._process.environment != environment:
            self._end()
        if self._process is None:
            self._process = _Process(environment)
        return self._process

    def _end(self) -> None:
        if self._process is not None:
            self._process.close()
            self._process = None


class _Process:
    """A server and the socket to it.

    Args:
        environment: environment of the process, which the trainings inherit.
    """

    def __init__(self, environment: Mapping[str, str]) -> None:
        self.environment = environment
        # Each message arrives as a whole.
        self._socket, other = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with other, holding_foreign():
            module = "vinedresser.infra.supervise.supervisor.server"
            self._process = subprocess.Popen(
                # -P: a module beside the training script must not shadow the standard library's.
                [sys.executable, "-P", "-m", module, str(other.fileno())],
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                pass_fds=(other.fileno(),),
                # Ctrl-C is for the flow.
                start_new_session=True,
            )

    def send(self, directory: Path, *descriptors: int) -> None:
        """Send a message.

        Raises:
            BrokenPipeError, ConnectionResetError: the process is dead.
        """
        socket.send_fds(self._socket, [os.fsencode(directory)], list(descriptors))

    def close(self) -> None:
        """End the process, and wait for its end."""
        self._socket.close()
        self._process.wait()
