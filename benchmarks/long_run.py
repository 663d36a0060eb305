"""Reading long runs: time by length, requests to the store, memory of the reader.

Each step has 100 small tensors, three statistics of each of 100 others, and a loss. The run is
written once at the training's own pace (segments of several hundred steps), and once as if a rule
were waiting (one segment per step).

python -m benchmarks.long_run [--directory DIR] [--steps 1000,3000,10000] [--rounds N]
"""

from __future__ import annotations

import argparse
import json
import re
import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np

from benchmarks.measure import table
from benchmarks.store_content import timed
from vinedresser.objects import LocalStorage
from vinedresser.store.reading.reader import Run, open_run
from vinedresser.store.step_record import StepRecord
from vinedresser.store.writing.writer import RunWriter
from vinedresser.testing.runs import end_run, host_tensor, start_run

TENSORS = 100
TENSOR, STATISTIC = "outputs/layers.7", "gradients/layers.7.weight"


def write(folder: Path, steps: int, *, singly: bool) -> float:
    """Write a run of some steps; return the seconds per step."""
    generator = np.random.default_rng(0)
    tensors = {
        f"outputs/layers.{number}": host_tensor(generator.standard_normal((4, 4), np.float32))
        for number in range(TENSORS)
    }
    statistics = {"l2": 0.5, "mean": 0.1, "abs_max": 2.0}
    start_run(folder)
    writer = RunWriter(LocalStorage(folder))

    def add_all() -> None:
        for step in range(steps):
            writer.add(
                StepRecord(
                    "train",
                    step,
                    1e9 + step / 20,
                    dict(tensors),
                    {"losses/loss": 1 / (step + 1)},
                    {f"gradients/layers.{n}.weight": dict(statistics) for n in range(TENSORS)},
                )
            )
            if singly:
                writer.flush()
        writer.close()

    seconds = timed(add_all)
    end_run(folder)
    return seconds / steps


class Counting(LocalStorage):
    """Counts round trips to a remote store; objects requested together count as one."""

    journeys = 0

    def get(self, key: str, start: int = 0, length: int | None = None) -> bytes:
        """See `Storage.get`."""
        self.journeys += 1
        return super().get(key, start, length)

    def get_many(self, keys: Sequence[str]) -> list[bytes | None]:
        """See `Storage.get_many`."""
        before = self.journeys
        found = super().get_many(keys)
        self.journeys = before + 1
        return found

    def exists(self, key: str) -> bool:
        """See `Storage.exists`."""
        self.journeys += 1
        return super().exists(key)

    def list(self, prefix: str, after: str = "") -> list[str]:
        """See `Storage.list`."""
        self.journeys += 1
        return super().list(prefix, after)


def jobs() -> dict[str, Callable[[Run], object]]:
    """Return the queries of a reader that has just opened a run."""
    return {
        "open": lambda run: run.info,
        "one step of one tensor": lambda run: run.tensor(TENSOR).value(777),
        "list all names": lambda run: run.tensor_names(),
        "one tensor over all steps": lambda run: sum(1 for _ in run.tensor(TENSOR).values()),
        "the loss over all steps": lambda run: run.scalars("losses"),
        "one statistic over all steps": lambda run: run.tensor(STATISTIC).reduction("l2"),
        "every step (follow)": lambda run: sum(1 for _ in run.follow()),
    }


def read(folder: Path, job: str) -> dict[str, float]:
    """Run one query in this process; return milliseconds, round trips and peak additional MB."""
    storage = Counting(folder)
    before = peak_memory()
    seconds = timed(lambda: jobs()[job](open_run(storage)))
    return {"ms": 1e3 * seconds, "journeys": storage.journeys, "MB": peak_memory() - before}


def peak_memory() -> float:
    """Return the peak memory of this process in MB."""
    status = Path("/proc/self/status").read_text(encoding="ascii")
    found = re.search(r"VmHWM:\s+(\d+) kB", status)
    assert found is not None
    return int(found[1]) / 1024


def read_elsewhere(folder: Path, job: str) -> dict[str, float]:
    """Return the result of `read` in a new process."""
    command = [sys.executable, "-m", "benchmarks.long_run", "--read", str(folder), job]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    found: dict[str, float] = json.loads(done.stdout)
    return found


def measure(folders: dict[int, Path], rounds: int) -> str:
    """Return a table of the results of each query at each length."""
    lengths = list(folders)
    rows: list[list[Any]] = []
    for job in jobs():
        found: dict[int, list[dict[str, float]]] = {length: [] for length in lengths}
        for _ in range(rounds):
            for length in lengths:
                found[length].append(read_elsewhere(folders[length], job))
        took = [median(one["ms"] for one in found[length]) for length in lengths]
        last = found[lengths[-1]]
        rows.append(
            [
                job,
                *(f"{ms:.1f}" for ms in took),
                f"{took[-1] / took[0]:.1f}",
                f"{last[0]['journeys']:.0f}",
                f"{median(one['MB'] for one in last):.0f}",
            ]
        )
    columns = [*(f"{length} steps, ms" for length in lengths), "ratio", "round trips", "memory, MB"]
    return table(rows, ["what", *columns])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--directory", type=Path)
    parser.add_argument("--steps", default="1000,3000,10000")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--read", nargs=2, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.read:
        print(json.dumps(read(Path(arguments.read[0]), arguments.read[1])))
        return
    lengths = [int(word) for word in arguments.steps.split(",")]
    print(f"{arguments.rounds} rounds, medians; ratio, round trips and memory for the longest run")
    for singly in (False, True):
        with tempfile.TemporaryDirectory(dir=arguments.directory) as name:
            folders = {length: Path(name, str(length)) for length in lengths}
            each = [write(folder, length, singly=singly) for length, folder in folders.items()]
            segments = len(LocalStorage(folders[lengths[-1]]).list("segments/"))
            print(
                f"\n{lengths[-1]} steps in {segments} segments; writing took "
                f"{', '.join(f'{1e3 * one:.2f}' for one in each)} ms per step"
            )
            print(measure(folders, arguments.rounds))


if __name__ == "__main__":
    main()
