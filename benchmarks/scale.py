"""A job of many ranks in simulation: `python -m benchmarks.scale`.

What 1,000 ranks of 10,000 steps cost the store and its readers, extrapolated from smaller jobs
whose sizes are printed. No training runs: the store's own committer writes, rank after rank, what
the hooks of the ranks would, in segments of a second (5 steps). Of each step of each rank these are
a loss and the times, and every 50 steps the fingerprints of 60 weights.

- write: CPU time and files of a rank and step;
- follow: a process that reads all steps of a job that has ended, in order;
- judge: the same with all default rules;
- poll: requests and time of a look for new steps while there are none, as of a job that trains;
- lag: from the commit of a new segment of every rank until a reader has all of its steps.
"""

from __future__ import annotations

import argparse
import os
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

from benchmarks.measure import table
from vinedresser.objects import LocalStorage, Storage
from vinedresser.rules.base import capture_for
from vinedresser.rules.judge import judge
from vinedresser.rules.presets import preset_table
from vinedresser.rules.registry import rules_from_table
from vinedresser.store.reading.reader import open_run
from vinedresser.store.step_record import StepRecord
from vinedresser.store.writing.committing import Committer
from vinedresser.testing.runs import end_run, start_run, step_record

# Steps of a segment: those of a second.
STEPS = 5
WEIGHTS = [f"weights/block{number}.weight" for number in range(60)]
EVERY = 50
# The job in question.
RANKS, LENGTH = 1000, 10_000


class Cost(NamedTuple):
    """What a process took.

    Attributes:
        seconds: wall time.
        cpu: CPU seconds.
        memory: peak of its resident memory in MB.
    """

    seconds: float
    cpu: float
    memory: float


class Live(NamedTuple):
    """What a reader of a job that trains does.

    Attributes:
        requests: requests of a look for new steps while there are none.
        milliseconds: time of such a look.
        round_trips: requests that follow each other, for a new segment of a rank.
        lag: seconds from the commit of a new segment of every rank until their steps are read.
    """

    requests: int
    milliseconds: float
    round_trips: float
    lag: float


def record(rank: int, step: int) -> StepRecord:
    """Return what a rank captures in a step."""
    times = dict.fromkeys(("timing/step", "timing/wait", "timing/forward"), 0.2)
    found = {name: {"fingerprint": float(step)} for name in WEIGHTS} if step % EVERY == 0 else {}
    loss = 1.0 / (1 + step) + 1e-3 * ((rank * 7919 + step * 104_729) % 100) / 100
    return step_record(step, scalars={"losses/loss": loss, **times}, reductions=found, at=step / 5)


def write(folder: Path, ranks: int, steps: int) -> tuple[list[Committer], float]:
    """Write a job that has not ended; return its committers and the CPU seconds."""
    rules = rules_from_table(preset_table("default"))
    start_run(folder, world_size=ranks, capture=capture_for(rules).with_defaults().to_json())
    committers = [Committer(LocalStorage(folder), rank) for rank in range(ranks)]
    began = time.process_time()
    for first in range(0, steps, STEPS):
        commit(committers, first)
    return committers, time.process_time() - began


def commit(committers: list[Committer], first: int) -> None:
    """Commit a segment of each rank."""
    for rank, committer in enumerate(committers):
        committer.commit([record(rank, step) for step in range(first, first + STEPS)], 0)
        committer.compact()


class Counting:
    """A storage that counts requests; several that run at the same time count once.

    Args:
        storage: the storage.
    """

    def __init__(self, storage: Storage) -> None:
        self._storage = storage
        self.location = storage.location
        self.requests = 0

    def __getattr__(self, name: str) -> Any:
        method: Callable[..., Any] = getattr(self._storage, name)

        def counted(*given: Any, **named: Any) -> Any:
            self.requests += 1
            return method(*given, **named)

        return counted


def poll(folder: Path, committers: list[Committer], steps: int) -> Live:
    """Follow a job that trains, and give it a new segment of each rank."""
    storage: Any = Counting(LocalStorage(folder))
    idle: list[tuple[int, float]] = []
    committed = 0.0

    def look() -> None:
        nonlocal committed
        idle.append((storage.requests, time.perf_counter()))
        if len(idle) == 10:
            commit(committers, steps)
            committed = time.perf_counter()

    # The last step of the other ranks follows the next one of rank 0.
    expected = len(committers) * (steps + STEPS - 1) + 1
    lag = round_trips = 0.0
    for number, step in enumerate(open_run(storage).follow(poll=0.0, on_idle=look), 1):
        step.scalars_of("losses")
        if number == expected:
            lag = time.perf_counter() - committed
            round_trips = (storage.requests - idle[9][0]) / len(committers)
            break
    (before, since), (after, until) = idle[2], idle[8]
    return Live((after - before) // 6, 1000 * (until - since) / 6, round_trips, lag)


def read(folder: Path, what: str) -> Cost:
    """Run a reader in a process of its own."""
    began = time.perf_counter()
    process = subprocess.Popen(
        [sys.executable, "-m", "benchmarks.scale", "--read", what, "--folder", str(folder)],
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        stdout=subprocess.PIPE,
        text=True,
    )
    printed, _ = process.communicate()
    assert process.returncode == 0, what
    cpu, memory = map(float, printed.split())
    return Cost(time.perf_counter() - began, cpu, memory)


def reader(folder: Path, what: str) -> None:
    """Read a job: the program of a process."""
    run = open_run(folder)
    if what == "judge":
        judge(run, rules_from_table(preset_table("default")))
    elif what == "follow":
        for _ in run.follow():
            pass
    # Not the peak that wait4 reports, which includes that of the process before the program began.
    peak = re.search(r"VmHWM:\s+(\d+) kB", Path("/proc/self/status").read_text())
    assert peak is not None
    print(time.process_time(), int(peak[1]) / 1024)


def measure(base: Path, ranks: int, steps: int) -> list[str]:
    """Measure a job; return its row."""
    folder = base / f"{ranks}-{steps}"
    committers, cpu = write(folder, ranks, steps)
    live = poll(folder, committers, steps)
    end_run(folder)
    count = ranks * (steps + STEPS)
    files = [
        path for part in ("segments", "index", "manifests") for path in folder.glob(f"{part}/*/*")
    ]
    size = sum(path.stat().st_size for path in files)
    start, follow, judged = (read(folder, what) for what in ("start", "follow", "judge"))
    return [
        f"{ranks:,} x {steps:,}",
        f"{1e6 * cpu / (ranks * steps):.0f}",
        f"{len(files) / count:.3f}",
        f"{size / count:.0f}",
        f"{1e6 * (follow.cpu - start.cpu) / count:.0f}",
        f"{follow.memory - start.memory:.0f}",
        f"{1e6 * (judged.cpu - start.cpu) / count:.0f}",
        f"{judged.memory - start.memory:.0f}",
        str(live.requests),
        f"{live.milliseconds:.1f}",
        f"{live.round_trips:.1f}",
        f"{live.lag:.2f}",
    ]


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--directory", type=Path, help="directory of the jobs")
    parser.add_argument("--sizes", nargs="+", default=["10x10000", "100x3000", "1000x300"])
    parser.add_argument("--read", choices=["start", "follow", "judge"], help=argparse.SUPPRESS)
    parser.add_argument("--folder", type=Path, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.read:
        reader(given.folder, given.read)
        return
    with tempfile.TemporaryDirectory(dir=given.directory) as folder:
        rows = [measure(Path(folder), *map(int, size.split("x"))) for size in given.sizes]
    headers = [
        *("ranks x steps", "write us", "files", "bytes", "follow us", "MB", "judge us", "MB"),
        *("look: requests", "ms", "segment: requests", "lag s"),
    ]
    print(table(rows, headers))
    print(
        f"us, files and bytes: of one step of one rank; the job in question has {RANKS * LENGTH:,}"
    )


if __name__ == "__main__":
    main()
