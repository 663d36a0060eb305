"""The command line in a terminal of its own."""

from __future__ import annotations

import os
import pty
import select
import subprocess
import sys
import threading
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path

__all__ = ["Terminal"]

# Makes the standard input the controlling terminal, so that ^C in it signals the process group.
# Tests that run under nohup pass an ignored SIGHUP on, which a flow would go on ignoring.
_CONTROLLED = """
import fcntl, os, signal, sys, termios
signal.signal(signal.SIGHUP, signal.SIG_DFL)
fcntl.ioctl(0, termios.TIOCSCTTY, 0)
os.execvp(sys.argv[1], sys.argv[1:])
"""


class Terminal:
    """A command whose controlling terminal is a new pseudo-terminal.

    Args:
        arguments: arguments of the command line.
        cwd: its working directory.
        environment: variables, added to the inherited ones; None removes one.
        program: another program than the command line; the arguments are its own.
        before: command with which the program is started, such as a tracer.

    Attributes:
        process: its process, the leader of the terminal's session.
    """

    def __init__(
        self,
        *arguments: str,
        cwd: Path,
        environment: Mapping[str, str | None] | None = None,
        program: Sequence[str] = (sys.executable, "-m", "vinedresser"),
        before: Sequence[str] = (),
    ) -> None:
        self._master, slave = pty.openpty()
        variables = {**os.environ, "COLUMNS": "160", "TERM": "xterm", **(environment or {})}
        self.process = subprocess.Popen(
            [*before, sys.executable, "-c", _CONTROLLED, *program, *arguments],
            stdin=slave,
            stdout=slave,
            stderr=slave,
            cwd=cwd,
            env={name: value for name, value in variables.items() if value is not None},
            start_new_session=True,
        )
        os.close(slave)
        self._output = bytearray()
        self._closed, self._close = os.pipe()
        self._reader = threading.Thread(target=self._read)
        self._reader.start()

    def type(self, text: str) -> None:
        """Type on its keyboard."""
        os.write(self._master, text.encode())

    def close(self) -> None:
        """Close it, as its window does: its processes get SIGHUP."""
        os.close(self._close)
        self._reader.join()
        os.close(self._closed)
        os.close(self._master)

    def printed(self) -> str:
        """Return what has been printed so far."""
        return self._output.decode(errors="replace")

    def output(self) -> str:
        """Wait for the end of the command, close it, and return all that was printed."""
        self.process.wait()
        self.close()
        return self._output.decode()

    def _read(self) -> None:
        # A terminal that is being read cannot be closed: wait for either.
        poll = select.poll()
        for descriptor in (self._master, self._closed):
            poll.register(descriptor, select.POLLIN)
        # When no process has it open any longer, reading fails.
        with suppress(OSError):
            while self._master in (ready := dict(poll.poll())) or not ready:
                self._output += os.read(self._master, 4096)
