"""A Python process that has loaded torch and runs each program in a forked child of its own.

Starting Python and loading torch takes three seconds of a core, and the documents have dozens of
such programs. To a program it is a new process: with its own directory, environment, arguments
and `__main__`, and an end of its own.
"""

from __future__ import annotations

import json
import os
import runpy
import signal
import socket
import subprocess
import sys
import types
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from typing import Any

from tests.paths import ROOT

__all__ = ["WarmPython", "warm_python"]


class WarmPython:
    """The client of such a process.

    Args:
        channel: connection to it.
        outputs: file that takes what a program prints.
    """

    def __init__(self, channel: socket.socket, outputs: Path) -> None:
        self._channel = channel
        self._outputs = outputs

    def run(
        self, words: Sequence[str], directory: Path, environment: Mapping[str, str]
    ) -> tuple[int, str]:
        """Run a program; return its exit code and what it printed.

        Args:
            words: arguments of `python`: ``-c CODE``, or the path of a script and its arguments.
            directory: its working directory.
            environment: its environment.
        """
        request = {
            "words": [*words],
            "directory": str(directory),
            "environment": {**environment},
            "output": str(self._outputs),
        }
        self._channel.sendall(json.dumps(request).encode() + b"\n")
        answer = self._channel.recv(64)
        assert answer, "the process that runs programs has ended"
        return int(answer), self._outputs.read_text(encoding="utf-8")


@contextmanager
def warm_python(outputs: Path) -> Iterator[WarmPython]:
    """Start such a process, and end it with the body.

    Args:
        outputs: file that takes what a program prints.
    """
    ours, theirs = socket.socketpair()
    with ours, theirs:
        command = [sys.executable, "-m", "tests.project.warm_python", str(theirs.fileno())]
        process = subprocess.Popen(
            command, cwd=ROOT, pass_fds=[theirs.fileno()], start_new_session=True
        )
        theirs.close()
        ours.settimeout(150)
        try:
            yield WarmPython(ours, outputs)
        finally:
            # With a program that took too long.
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()


def next_program(channel: socket.socket) -> dict[str, Any] | None:
    """Wait for requests, and run each in a child.

    Returns:
        In a child, its request; in the process itself None, once nobody will send another one.
    """
    for line in channel.makefile("rb"):
        pid = os.fork()
        if not pid:
            return dict(json.loads(line))
        code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
        channel.sendall(str(code).encode())
    return None


def become(program: dict[str, Any]) -> None:
    """Run a program in this process, which has been forked for it."""
    os.chdir(program["directory"])
    os.environ.clear()
    os.environ |= program["environment"]
    output = os.open(program["output"], os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    for descriptor in (1, 2):
        os.dup2(output, descriptor)
    os.close(output)
    first, *arguments = program["words"]
    if first == "-c":
        code, *arguments = arguments
        sys.argv, sys.path[0] = ["-c", *arguments], ""
        sys.modules["__main__"] = main = types.ModuleType("__main__")
        exec(compile(code, "<string>", "exec"), main.__dict__)
    else:
        sys.argv, sys.path[0] = [first, *arguments], str(Path(first).absolute().parent)
        runpy.run_path(first, run_name="__main__")


def main() -> None:
    """Load torch, and run programs until the channel is closed."""
    channel = socket.socket(fileno=int(sys.argv[1]))
    # What any optimizer loads.
    import_module("torch._dynamo")
    program = next_program(channel)
    channel.close()
    if program is not None:
        become(program)


if __name__ == "__main__":
    main()
