"""Runs a scenario once for each system call that fails, each time in a forked child.

`python -m tests.failing_calls.zygote MODULE FUNCTION FOLDER CASES LIMIT`, with `failing_calls.c`
preloaded. CASES is a JSON list of ``[errno, onwards, stride]``. For each of them n is 1, 1 + stride
and so on, until a run passes in which no call failed. A child that takes more than LIMIT seconds is
killed. A line of JSON for each child goes to stdout. If the module has a function `prepare`, it is
called before each scenario, with the same folder, while no call fails.
"""

from __future__ import annotations

import atexit
import ctypes
import json
import os
import select
import signal
import sys
import traceback
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any

Scenario = Callable[[Path], Any]


def run_child(scenario: Scenario, folder: Path, at: int, error: int, onwards: bool) -> None:
    """Run the scenario as if it were a program, write its result, and end the process."""
    library = ctypes.CDLL(os.environ["LD_PRELOAD"])
    said = os.open(folder.with_suffix(".err"), os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    os.dup2(said, 1)
    os.dup2(said, 2)
    result, code = None, 0
    library.failing_calls_log(os.fsencode(folder.with_suffix(".failed")))
    library.failing_calls_arm(os.fsencode(folder), at, error, int(onwards))
    try:
        result = scenario(folder)
        atexit._run_exitfuncs()
    except BaseException:  # noqa: BLE001 (the end of a program)
        traceback.print_exc()
        code = 1
    library.failing_calls_disarm()
    folder.with_suffix(".json").write_text(json.dumps(result))
    os._exit(code)


def wait(pid: int, limit: float) -> int:
    """Wait for a child, and kill it after some seconds; return its exit code."""
    ended = os.pidfd_open(pid)
    if not select.select([ended], [], [], limit)[0]:
        os.kill(pid, signal.SIGKILL)
    os.close(ended)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


def text_of(path: Path) -> str:
    """Return the content of a file; empty if it is missing."""
    return path.read_text() if path.exists() else ""


def warm_up(scenario: Scenario, prepare: Scenario, folder: Path) -> None:
    """Import what the scenario needs, which would otherwise take seconds in each child."""
    prepare(folder)
    protocol = os.dup(1)
    # What it prints is no part of the protocol.
    os.dup2(2, 1)
    scenario(folder)
    os.dup2(protocol, 1)
    os.close(protocol)


def main() -> None:
    """Run all cases."""
    name, function, folder, cases, limit = sys.argv[1:]
    module = import_module(name)
    scenario: Scenario = getattr(module, function)
    prepare: Scenario = getattr(module, "prepare", lambda folder: None)
    warm_up(scenario, prepare, Path(folder, "warm"))
    for error, onwards, stride in json.loads(cases):
        at = 1
        while True:
            place = Path(folder, f"{error}-{int(onwards)}-{at}")
            prepare(place)
            pid = os.fork()
            if not pid:
                run_child(scenario, place, at, error, onwards)
            case = {"folder": str(place), "at": at, "error": error, "onwards": onwards}
            case["code"] = wait(pid, float(limit))
            case["call"] = text_of(place.with_suffix(".failed")).strip()
            case["result"] = json.loads(text_of(place.with_suffix(".json")) or "null")
            print(json.dumps(case))  # noqa: T201 (the protocol)
            if not case["call"]:
                break
            at += stride


if __name__ == "__main__":
    main()
