"""Seconds of everyday commands on a store, as docs/compared.md has them.

    python -m benchmarks.daily_tasks

Writes 200 runs of 1,000 steps, like `benchmarks.comparison`, and runs each command in a process of
its own, so that its imports count.
"""

from __future__ import annotations

import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

from benchmarks.comparison.__main__ import make_varied

_RUNS, _STEPS, _REPEATS = 200, 1000, 3
# Task -> the command, in the folder with the store.
_TASKS = {
    "list all runs with their verdicts": "status runs",
    "be told what is wrong with a run": "judge runs/run-0000",
    "what differs between two runs, and since when": "compare runs/run-0000 runs/run-0100",
    "the same of all 200, as a page": "compare runs",
    "gradients of a layer over the steps": "show runs/run-0000 gradients/0.weight --draw curve.svg",
    "ask a run for what nobody logged": "ask runs/run-0000 max(norm(gradients))",
    "how to run it again as it was": "rerun runs/run-0000",
    "list what is not needed": "gc runs --keep 20",
}


def main() -> None:
    """Measure and print."""
    draw = np.random.default_rng(0)
    with tempfile.TemporaryDirectory() as folder:
        for number in range(_RUNS):
            make_varied(Path(folder, "runs", f"run-{number:04d}"), number, _STEPS, draw)
        for task, command in _TASKS.items():
            seconds = [_seconds(command, folder) for _ in range(_REPEATS)]
            print(f"{statistics.median(seconds):5.1f} s   {task}   (vinedresser {command})")


def _seconds(command: str, folder: str) -> float:
    began = time.perf_counter()
    arguments = [sys.executable, "-m", "vinedresser", *command.split()]
    subprocess.run(arguments, cwd=folder, check=True, capture_output=True)
    return time.perf_counter() - began


if __name__ == "__main__":
    main()
