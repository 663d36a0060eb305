"""Runs a scenario once for each system call that fails, each time in a forked child.

`python -m tests.failing_calls.zygote MODULE FUNCTION FOLDER CASES`, with `failing_calls.c`
preloaded. CASES is a JSON list of ``[errno, onwards, stride]``. For each of them n is 1, 1 + stride
and so on, until a run passes in which no call failed. A line of JSON for each child goes to stdout.
"""

from __future__ import annotations

import atexit
import ctypes
import json
import os
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
    library.failing_calls_failed.restype = ctypes.c_char_p
    said = os.open(folder.with_suffix(".err"), os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    os.dup2(said, 2)
    result, code = None, 0
    library.failing_calls_arm(os.fsencode(folder), at, error, int(onwards))
    try:
        result = scenario(folder)
        atexit._run_exitfuncs()
    except BaseException:  # noqa: BLE001 (the end of a program)
        traceback.print_exc()
        code = 1
    library.failing_calls_disarm()
    failed = library.failing_calls_failed().decode()
    folder.with_suffix(".json").write_text(json.dumps({"failed": failed, "result": result}))
    os._exit(code)


def main() -> None:
    """Run all cases."""
    module, function, folder, cases = sys.argv[1:]
    scenario: Scenario = getattr(import_module(module), function)
    # Imports what it needs, which would otherwise take seconds in each child.
    scenario(Path(folder, "warm"))
    for error, onwards, stride in json.loads(cases):
        at = 1
        while True:
            place = Path(folder, f"{error}-{int(onwards)}-{at}")
            pid = os.fork()
            if not pid:
                run_child(scenario, place, at, error, onwards)
            _, status = os.waitpid(pid, 0)
            noted = json.loads(place.with_suffix(".json").read_text())
            case = {"folder": str(place), "at": at, "error": error, "onwards": onwards}
            line = json.dumps({**case, **noted, "code": os.waitstatus_to_exitcode(status)})
            print(line)  # noqa: T201 (the protocol)
            if not noted["failed"]:
                break
            at += stride


if __name__ == "__main__":
    main()
