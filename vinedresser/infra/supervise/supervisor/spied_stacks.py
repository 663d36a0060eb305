"""Where processes stand that do not say so themselves, by py-spy, if it is installed."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import time
from collections.abc import Callable, Sequence
from typing import IO, Any

# Seconds for all of them: a host answers within three, of which its ranks have had one.
_PATIENCE = 1.5


def spied_stacks(pids: Sequence[int], turn: Callable[[], None]) -> dict[int, list[list[Any]]]:
    """Return the frames of the main threads, innermost first, as ``[file, line, function]``, by id.

    py-spy needs the right to look into other processes; without it, there are none.

    Args:
        pids: ids of the processes.
        turn: handles pending events, or the first that arrives within a tick.
    """
    program = shutil.which("py-spy")
    if program is None:
        return {}
    deadline = time.monotonic() + _PATIENCE
    spies: list[tuple[int, subprocess.Popen[bytes], IO[bytes]]] = []
    for pid in pids:
        # It must not pause the process.
        command: list[str] = [program, "dump", "--nonblocking", "--json", "--pid", str(pid)]
        try:
            # The disk may be full.
            output = os.fdopen(os.memfd_create("stack"), "rb")
            spy = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.DEVNULL
            )
        except OSError:
            break
        spies.append((pid, spy, output))
    while any(spy.poll() is None for _, spy, _ in spies) and time.monotonic() < deadline:
        turn()
    found = {}
    for pid, spy, written in spies:
        spy.kill()
        spy.wait()
        with written:
            written.seek(0)
            found[pid] = _frames(pid, written.read())
    return found


def _frames(pid: int, dump: bytes) -> list[list[Any]]:
    """Return the frames of the main thread in the output of py-spy; [] if it has none."""
    try:
        [main] = [thread for thread in json.loads(dump) if thread["os_thread_id"] == pid]
        return [
            [str(frame["filename"]), int(frame["line"]), str(frame["name"])]
            for frame in main["frames"]
        ]
    except (KeyError, TypeError, ValueError):
        return []
