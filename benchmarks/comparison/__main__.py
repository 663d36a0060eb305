"""CPU time of comparing 200 runs, next to its budget: `python -m benchmarks.comparison`.

The runs have 1,000 steps, 40 layers and an evaluation every 100 steps. The command runs in a
process of its own, so that its imports count.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
from pathlib import Path
from resource import RUSAGE_CHILDREN, getrusage
from statistics import median

import numpy as np

from vinedresser.testing.runs import make_run, step_record

_RUNS, _STEPS, _LAYERS, _REPEATS = 200, 1000, 40, 3
_BUDGET = 5.0


def main() -> None:
    draw = np.random.default_rng(0)
    with tempfile.TemporaryDirectory() as folder:
        for number in range(_RUNS):
            _make(Path(folder, "runs", f"run-{number:03d}"), number, draw)
        seconds = median(_compare(Path(folder)) for _ in range(_REPEATS))
    print(f"compare {_RUNS} runs of {_STEPS} steps: {seconds:.1f} s of CPU (budget {_BUDGET} s)")


def _make(place: Path, number: int, draw: np.random.Generator) -> None:
    records = []
    for step in range(_STEPS):
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


def _compare(folder: Path) -> float:
    """Return the CPU time of the command, in seconds."""
    before = getrusage(RUSAGE_CHILDREN)
    command = [sys.executable, "-m", "vinedresser", "compare", "runs"]
    subprocess.run(command, cwd=folder, check=True, stdout=subprocess.DEVNULL)
    after = getrusage(RUSAGE_CHILDREN)
    return after.ru_utime - before.ru_utime + after.ru_stime - before.ru_stime


if __name__ == "__main__":
    main()
