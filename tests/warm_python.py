"""Python processes that have loaded large packages and run each program in a forked child.

Loading torch, or MLflow and what Prefect needs, takes three seconds of a core, and the tests run
hundreds of programs. To a program it is a new process: with its own directory, environment,
arguments and `__main__`, and an end of its own. Only `/proc` shows the command line and the
environment of the process that was forked.
"""

from __future__ import annotations

import atexit
import gc
import json
import os
import runpy
import signal
import socket
import subprocess
import sys
import tempfile
import types
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from typing import Any

from tests.paths import ROOT

__all__ = ["COMMANDS", "TORCH", "WarmPython"]

# Seconds that a program has.
_PATIENCE = 240.0


class WarmPython:
    """Such a process of the tests of this one: it starts with the first program.

    Args:
        modules: what it loads.
    """

    def __init__(self, *modules: str) -> None:
        self._modules = modules
        # That of all tests: what the one with the first program sets is not for the others.
        self._environment = {**os.environ}
        self._running: tuple[subprocess.Popen[bytes], socket.socket] | None = None

    def run(
        self,
        words: Sequence[str],
        directory: Path,
        environment: Mapping[str, str],
        *,
        given: str = "",
        merged: bool = False,
    ) -> subprocess.CompletedProcess[str]:
        """Run a program and return its exit code and what it printed.

        Args:
            words: arguments of `python`: ``-c CODE``, ``-m MODULE`` or the path of a script, and
                the arguments of that.
            directory: its working directory.
            environment: its environment.
            given: its standard input.
            merged: whether what it prints to its standard error is in its standard output.
        """
        _, channel = self._running or self._start()
        with tempfile.TemporaryDirectory() as folder:
            stdin, stdout, stderr = (Path(folder, name) for name in ("stdin", "stdout", "stderr"))
            stdin.write_text(given, encoding="utf-8")
            stderr.touch()
            request = {
                "words": [*words],
                "directory": str(directory.absolute()),
                "environment": {**environment},
                "streams": [str(stdin), str(stdout), str(stdout if merged else stderr)],
            }
            answer = b""
            try:
                channel.sendall(json.dumps(request).encode() + b"\n")
                answer = channel.recv(64)
            finally:
                if not answer:
                    # With the program, whose answer would be taken for that of the next one.
                    self._end()
            assert answer, "the process that runs programs has ended"
            printed = (path.read_text(encoding="utf-8") for path in (stdout, stderr))
            return subprocess.CompletedProcess([*words], int(answer), *printed)

    @contextmanager
    def running(
        self, words: Sequence[str], directory: Path, environment: Mapping[str, str]
    ) -> Iterator[Future[subprocess.CompletedProcess[str]]]:
        """Run a program while the caller does something else; kill it if it is then not over.

        It is the only one meanwhile. `run` has the arguments.
        """
        process, _ = self._running or self._start()
        with ThreadPoolExecutor(1) as pool:
            ended = pool.submit(self.run, words, directory, environment)
            try:
                yield ended
            finally:
                if not ended.done():
                    os.killpg(process.pid, signal.SIGKILL)

    def _start(self) -> tuple[subprocess.Popen[bytes], socket.socket]:
        ours, theirs = socket.socketpair()
        ours.settimeout(_PATIENCE)
        with theirs:
            number = theirs.fileno()
            process = subprocess.Popen(
                [sys.executable, "-m", "tests.warm_python", str(number), *self._modules],
                cwd=ROOT,
                # Torch reads it when it is loaded; of some, it was not yet set when this was.
                env={**self._environment, "OMP_NUM_THREADS": "1"},
                pass_fds=[number],
                start_new_session=True,
            )
        self._running = process, ours
        atexit.register(self._end)
        return self._running

    def _end(self) -> None:
        if self._running is not None:
            process, channel = self._running
            self._running = None
            channel.close()
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()


# It has loaded what any optimizer of torch loads.
TORCH = WarmPython("torch._dynamo")
# It has loaded what commands do, but neither Prefect, which reads its settings when it is loaded,
# nor the console, which then looks at the terminal.
COMMANDS = WarmPython(
    *("vinedresser.cli.application", "vinedresser.explain.comparison.comparing"),
    *("vinedresser.tasks.config.monitor_file", "vinedresser.tasks.config.sweep_file"),
    *("vinedresser.explain.reports.monitor", "vinedresser.explain.reports.report"),
    *("vinedresser.infra.services.tracking.finishing", "vinedresser.rules.worker"),
    *("mlflow", "mlflow.store.tracking.sqlalchemy_store", "optuna"),
    *("amplitude", "coolname", "fsspec", "griffe", "httpcore", "httpx", "jsonschema", "pathspec"),
    *("pendulum", "prometheus_client", "pydantic_settings", "websockets"),
)


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
    output = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_APPEND
    for number, path in enumerate(program["streams"]):
        opened = os.open(path, output if number else os.O_RDONLY)
        os.dup2(opened, number)
        os.close(opened)
    sys.path[1:1] = filter(None, os.environ.get("PYTHONPATH", "").split(os.pathsep))
    first, *arguments = program["words"]
    if first == "-m":
        sys.argv, sys.path[0] = arguments, os.getcwd()
        runpy.run_module(arguments[0], run_name="__main__", alter_sys=True)
        return
    sys.modules["__main__"] = main = types.ModuleType("__main__")
    if first == "-c":
        code, *arguments = arguments
        name, sys.path[0] = "<string>", ""
    else:
        # Absolute in tracebacks and warnings, as Python has it.
        path = Path(first).absolute()
        code, name, sys.path[0] = path.read_text(encoding="utf-8"), str(path), str(path.parent)
        main.__file__ = name
    sys.argv = [first, *arguments]
    exec(compile(code, name, "exec"), main.__dict__)


def main() -> None:
    """Load the modules, and run programs until the channel is closed."""
    channel = socket.socket(fileno=int(sys.argv[1]))
    channel.set_inheritable(False)
    gc.disable()
    for module in sys.argv[2:]:
        import_module(module)
    # A child that looks for garbage would copy the memory of all that was loaded.
    gc.freeze()
    gc.enable()
    program = next_program(channel)
    channel.close()
    if program is not None:
        become(program)


if __name__ == "__main__":
    main()
