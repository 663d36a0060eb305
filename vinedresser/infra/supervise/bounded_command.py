"""Running a command for a limited time, with all of its processes."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from typing import BinaryIO

from vinedresser.infra.supervise.supervisor.prctl import end_with_parent

# Seconds in which a command must end once it has its result, or was asked to.
_GRACE = 10.0
_POLL = 0.1


def run_bounded(
    argv: Sequence[str],
    *,
    cwd: str | os.PathLike[str],
    environment: Mapping[str, str],
    output: BinaryIO,
    timeout: float,
    given_up: Callable[[], bool],
    finished: Callable[[], bool] = lambda: False,
    niceness: int = 0,
) -> int | None:
    """Run a command in a session of its own, which ends with this call and with this process.

    Args:
        argv: program and arguments.
        cwd: directory in which it starts.
        environment: its variables.
        output: file for what it prints.
        timeout: seconds after which it is ended.
        given_up: returns True to end it early.
        finished: returns True once it has its result and must end within ten seconds.
        niceness: added to its nice value, so that others have the cores first.

    Returns:
        Its exit code; None if it was ended.
    """
    parent = os.getpid()

    def prepare() -> None:
        end_with_parent(parent, signal.SIGTERM)
        os.nice(niceness)

    process = subprocess.Popen(
        argv,
        cwd=cwd,
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=output,
        stderr=output,
        start_new_session=True,
        preexec_fn=prepare,  # noqa: PLW1509
    )
    deadline = time.monotonic() + timeout
    ending = False
    try:
        while time.monotonic() < deadline and not given_up():
            if not ending and finished():
                ending, deadline = True, time.monotonic() + _GRACE
            try:
                return process.wait(_POLL)
            except subprocess.TimeoutExpired:
                continue
        _signal(process, signal.SIGTERM)
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(_GRACE)
        return None
    finally:
        # Also its workers, and also after Ctrl-C.
        _signal(process, signal.SIGKILL)
        process.wait()


def _signal(process: subprocess.Popen[bytes], number: signal.Signals) -> None:
    try:
        os.killpg(process.pid, number)
    except ProcessLookupError:
        return
