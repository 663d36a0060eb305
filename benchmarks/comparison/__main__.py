"""Costs of comparing many runs, next to their budgets: `python -m benchmarks.comparison`.

These are 200 runs of 1,000 steps, and 2,000 of 100, with 40 layers and an evaluation every 100
steps. `vinedresser compare` runs in a process of its own, so that its imports count. Of the page of
`vinedresser watch`, this is the time from the request until Chromium, if there is one on the PATH,
has drawn the first chart of 200 runs, and until it lists all runs.
"""

from __future__ import annotations

import statistics
import subprocess
import sys
import tempfile
import time
from contextlib import suppress
from functools import partial
from pathlib import Path
from resource import RUSAGE_CHILDREN, getrusage

import numpy as np
import psutil

from tests.waiting import until
from tests.watching.browser import CHROMIUM, opened
from tests.watching.test_watch import watching
from vinedresser.testing.runs import make_run, step_record

__all__ = ["make_varied"]

# Runs, steps of each, and the budget in seconds.
_CASES = ((200, 1000, 5.0), (2000, 100, 10.0))
# Seconds until the first chart, and the number of runs for which they are the budget.
_PICTURE, _DRAWN = 2.0, 200
_LAYERS, _REPEATS = 40, 3


def main() -> None:
    draw = np.random.default_rng(0)
    for runs, steps, budget in _CASES:
        with tempfile.TemporaryDirectory() as folder:
            for number in range(runs):
                make_varied(Path(folder, "runs", f"run-{number:04d}"), number, steps, draw)
            seconds = statistics.median(_compare(Path(folder)) for _ in range(_REPEATS))
            print(
                f"compare {runs} runs of {steps} steps: {seconds:.1f} s of CPU (budget {budget} s)"
            )
            _page(Path(folder), runs)


def make_varied(place: Path, number: int, steps: int, draw: np.random.Generator) -> None:
    """Make a run of 40 layers whose learning rate and seed are those of its number."""
    records = []
    for step in range(steps):
        loss = 2.0 * 0.998**step + 0.02 * draw.normal()
        names = [
            f"{k}/{n}.weight" for k in ("gradients", "weights", "updates") for n in range(_LAYERS)
        ]
        norms = {name: {"l2": float(draw.uniform())} for name in names} if step % 20 == 0 else {}
        scalars = {"losses/CrossEntropyLoss": loss, "timing/step": 0.01}
        records.append(step_record(step, scalars=scalars, reductions=norms))
        if step % 100 == 99:
            scalars = {"metrics/accuracy": 1 - loss / 3}
            records.append(step_record(step + 1, mode="eval", scalars=scalars))
    make_run(place, records, name=place.name, parameters={"lr": number // 4, "seed": number % 4})


def _page(folder: Path, runs: int) -> None:
    """Print the times until the page of the store is drawn and complete."""
    if CHROMIUM is None:
        print("page: not measured, there is no Chromium or Chrome on the PATH")
        return
    times: dict[str, list[tuple[float, float]]] = {"all listed": [], "first chart": []}
    shown = "document.getElementById('shown')?.textContent"
    scripts = {
        "all listed": f"{shown}.includes(' of {runs:,} runs')",
        "first chart": "document.querySelector('.curve .uplot') !== null",
    }
    with opened(folder / "profile") as browser:
        for _ in range(_REPEATS):
            with watching(folder / "runs") as (address, _, _):
                began, used = time.perf_counter(), _used()
                browser.open(address)
                for name, script in scripts.items():
                    until(partial(browser.value, script), name)
                    times[name].append((time.perf_counter() - began, _used() - used))
    for name, found in times.items():
        seconds, cpu = (statistics.median(one) for one in zip(*found, strict=True))
        budget = f" (budget {_PICTURE} s)" if runs == _DRAWN and name == "first chart" else ""
        print(f"page of {runs} runs, {name}: {seconds:.1f} s{budget}, {cpu:.1f} s of CPU")


def _used() -> float:
    """Return the CPU time of the server and the browser so far, in seconds."""
    total = 0.0
    for process in psutil.Process().children(recursive=True):
        with suppress(psutil.NoSuchProcess):
            times = process.cpu_times()
            total += times.user + times.system
    return total


def _compare(folder: Path) -> float:
    """Return the CPU time of the command, in seconds."""
    before = getrusage(RUSAGE_CHILDREN)
    command = [sys.executable, "-m", "vinedresser", "compare", "runs"]
    subprocess.run(command, cwd=folder, check=True, stdout=subprocess.DEVNULL)
    after = getrusage(RUSAGE_CHILDREN)
    return after.ru_utime - before.ru_utime + after.ru_stime - before.ru_stime


if __name__ == "__main__":
    main()
