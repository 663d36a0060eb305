"""Time from a tensor on disk to a stopped process: `python -m benchmarks.reaction`.

Each round is a real training of the digits example that becomes NaN, with its supervisor and judge.
Three times are read from the files that the processes write: the index record that commits the
first NaN loss, stop.json (the rule has fired), and exit.json (the trainer has exited, its
checkpoint is written). Steps take about 2 ms, so a single step hardly matters.
"""

from __future__ import annotations

import argparse
import os
import tempfile
from itertools import pairwise
from pathlib import Path

import numpy as np

from benchmarks.measure import table
from vinedresser.store.reading.reader import open_run
from vinedresser.store.records import ExitRecord, StopRecord, index_key
from vinedresser.tasks.lifecycle.run_script import Script, prepare_script, run_script

SCRIPT = Path(__file__).parent.parent / "examples" / "digits" / "train.py"
OPTIONS = ("--model", "mlp", "--naive-loss", "--scale", "1", "--steps", "1000000")
PARTS = (
    ("on disk -> rule fired (stop.json)", 0.3),
    ("rule fired -> process gone (exit.json)", 0.3),
)


def one_round(directory: Path) -> tuple[float, float, float]:
    """Return the three times of one stopped training, in seconds since the epoch."""
    script = Script([str(SCRIPT), *OPTIONS], {"nonfinite": {}}, forward=False)
    run_script(prepare_script(directory, script))
    run = open_run(directory)
    losses = next(iter(run.scalars("losses", mode="train").values()))
    first = float(losses.times[np.isnan(losses.values)][0])
    commits = sorted(written(path) for path in (directory / index_key(0, 0)).parent.glob("*.json"))
    # A step is in the first record that was written after the step ended.
    on_disk = next(moment for moment in commits if moment >= first)
    assert run.status.rule == "nonfinite"
    assert any((directory / "checkpoints").iterdir()), "stopped with its checkpoint"
    return on_disk, written(directory / StopRecord.KEY), written(directory / ExitRecord.KEY)


def written(path: Path) -> float:
    """Return the modification time of a file, in seconds since the epoch."""
    return path.stat().st_mtime_ns / 1e9


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=20)
    options = parser.parse_args()
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    with tempfile.TemporaryDirectory() as folder:
        moments = [one_round(Path(folder, str(index))) for index in range(options.rounds)]
    parts = np.array([[later - earlier for earlier, later in pairwise(row)] for row in moments])
    rows = [
        [name, *(f"{1000 * q:.0f}" for q in np.percentile(part, (50, 95))), f"{1000 * budget:.0f}"]
        for (name, budget), part in zip(PARTS, parts.T, strict=True)
    ]
    both = np.percentile(parts.sum(axis=1), (50, 95))
    rows.append(["both", *(f"{1000 * q:.0f}" for q in both), "600"])
    print(f"{options.rounds} trainings that became NaN and were stopped")
    print(table(rows, ("milliseconds", "p50", "p95", "budget (p95)")))


if __name__ == "__main__":
    main()
