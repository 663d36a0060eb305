"""Memory of reading 2 GB: `python -m benchmarks.data.memory`.

Each way is a process of its own, which reads the same file eight times as one data set, whose index
is known. The figures are the growth of its peak of resident memory, or with workers the largest
memory of its own that one of them was seen with.

- exact: with an allocator that returns memory at once (``MALLOC_MMAP_THRESHOLD_``). It must stay
  below the bound that docs/data.md derives from the settings, and the peak of the last quarter of
  the data must not exceed that of the first quarter: memory must not grow with the data.
- usual: with glibc's defaults, minimum and maximum of several runs. What is above the bound is what
  the allocator keeps, for which docs/data.md has an allowance.

Ends with 1 if one of them is exceeded.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from benchmarks.measure import table
from vinedresser.data import Dataset, Mixture

BATCH = 256
FILE, TIMES = 256 << 20, 8
SIZES = (1_000, 100_000)
CHUNK, CONNECTIONS = 4 << 20, 16
# Bytes that are read ahead, of a record in the order of a window, and of everything else.
AHEAD, ENTRY, REST = 64 << 20, 240, 8 << 20
# Bytes per connection that glibc keeps, and with TensorFlow, whose threads allocate strings.
KEPT, KEPT_TENSORFLOW = 6 << 20, 9 << 20
# Bytes by which the peaks of two quarters may differ, and those of workers, which are sampled;
# 1.5 GB are read from the one to the other.
SPREAD, SPREAD_SAMPLED = 12 << 20, 32 << 20
EXACT = {"MALLOC_MMAP_THRESHOLD_": "65536"}


def plain(data: Iterable[Any]) -> Iterable[Any]:
    """Return the batches of a data set."""
    return data


def torch_workers(data: Any) -> Iterable[Any]:
    """Return the batches of two workers of PyTorch."""
    # The other ways take half as long without it.
    from vinedresser.data import TorchLoader

    return TorchLoader(data, num_workers=2, collate=list)


def into_tensorflow(data: Any) -> Iterable[Any]:
    """Return the batches as TensorFlow's tensors."""
    from vinedresser.data import tf_dataset

    batches: Iterable[Any] = tf_dataset(data)
    return batches


WAYS: dict[str, tuple[Callable[[Any], Iterable[Any]], dict[str, Any]]] = {
    "in order": (plain, {}),
    "shuffled": (plain, {"seed": 1}),
    "shuffled, 4 lanes": (plain, {"seed": 1, "lanes": 4}),
    "mixture of two classes": (plain, {"classes": 2}),
    "PyTorch, 2 workers": (torch_workers, {"seed": 1, "lanes": 2}),
    "TensorFlow": (into_tensorflow, {"seed": 1}),
}


class Peaks:
    """The largest memory of this process, or of its workers, by quarter of the data."""

    def __init__(self) -> None:
        self.quarters = [0] * 4
        self._workers = [0] * 4
        self._reset()
        self._before = self._peak()
        self._quarter = 0

    def sample(self, done: float) -> None:
        """Note the present memory, when a share of the data was read."""
        quarter = min(int(4 * done), 3)
        self._end_quarter()
        children = [child.pid for child in multiprocessing.active_children()]
        own = [_private(child) for child in children if child]
        self._workers[quarter] = max([self._workers[quarter], *own])
        if quarter != self._quarter:
            self._quarter = quarter
            self._reset()

    def result(self) -> list[int]:
        """Return the growth of the peak by quarter, in bytes; with workers, that of a worker."""
        self._end_quarter()
        return self._workers if any(self._workers) else self.quarters

    def _end_quarter(self) -> None:
        self.quarters[self._quarter] = self._peak() - self._before

    @staticmethod
    def _reset() -> None:
        Path("/proc/self/clear_refs").write_text("5")

    @staticmethod
    def _peak() -> int:
        return _kilobytes("VmHWM", Path("/proc/self/status"))


def _private(pid: int) -> int:
    """Return the memory that a process shares with no other, in bytes."""
    return _kilobytes("Private_Dirty", Path(f"/proc/{pid}/smaps_rollup"))


def _kilobytes(name: str, path: Path) -> int:
    found = re.search(rf"{name}:\s+(\d+) kB", path.read_text())
    assert found is not None
    return int(found[1]) << 10


def measure(name: str, path: Path) -> None:
    """Read everything, and print the peaks by quarter as JSON."""
    way, options = WAYS[name]
    # Threads, buffers and modules, none of which depend on what is read.
    next(iter(way(Dataset(path, batch_size=1, connections=1, chunk_bytes=1 << 18))))
    peaks = Peaks()
    if "classes" in options:
        sources: Any = {one.stem: [one] * (TIMES // 2) for one in path.parent.iterdir()}
        data: Any = Mixture(sources, batch_size=BATCH)
    else:
        data = Dataset([path] * TIMES, batch_size=BATCH, **options)
    batches = len(data)
    for number, _ in enumerate(way(data)):
        if number % max(batches // 100, 1) == 0:
            peaks.sample(number / batches)
    print(json.dumps(peaks.result()))


def bound(name: str, size: int) -> int:
    """Return the bound of docs/data.md without what the allocator keeps, in bytes."""
    _, options = WAYS[name]
    lanes: int = options.get("lanes", 1)
    batch = BATCH * size
    # Without a seed, a window is a chunk.
    window = (64 << 20) if "seed" in options or "classes" in options else CHUNK
    windows = max(window + window // lanes, batch + 2 * CHUNK)
    # Those of a worker are copied into shared memory, those for TensorFlow into a tensor.
    batches = 6 if "PyTorch" in name else 3 if name == "TensorFlow" else 2
    return windows + windows // size * ENTRY + AHEAD + batches * batch + REST


def run(name: str, path: Path, environment: dict[str, str]) -> list[int]:
    """Return the peaks of a way by quarter, measured in a new process."""
    command = [sys.executable, "-m", "benchmarks.data.memory", name, str(path)]
    done = subprocess.run(
        command, check=True, stdout=subprocess.PIPE, text=True, env=os.environ | environment
    )
    peaks: list[int] = json.loads(done.stdout.splitlines()[-1])
    return peaks


def compare(path: Path, size: int, rounds: int) -> tuple[list[list[str]], list[str]]:
    """Measure all ways with records of a size.

    Returns:
        The rows of the table, and what was exceeded.
    """
    rows, failures = [], []
    for name in WAYS:
        derived = bound(name, size)
        kept = KEPT_TENSORFLOW if name == "TensorFlow" else KEPT
        allowed = derived + CONNECTIONS * kept
        exact = run(name, path, EXACT)
        usual = [max(run(name, path, {})) for _ in range(rounds)]
        grown = exact[3] - exact[0]
        for value, most, what in (
            (max(exact), derived, "exact"),
            (max(usual), allowed, "usual"),
            (
                grown,
                SPREAD_SAMPLED if "PyTorch" in name else SPREAD,
                "last quarter above the first",
            ),
        ):
            if value > most:
                failures.append(
                    f"{name}, {size} bytes, {what}: {value / 2**20:.0f} of {most / 2**20:.0f} MiB"
                )
        figures = derived, max(exact), grown, allowed, min(usual), max(usual)
        rows.append([name, str(size), *(f"{one / 2**20:.0f}" for one in figures)])
        print(rows[-1], flush=True)
    return rows, failures


def main() -> None:
    """Measure all ways, and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("way", nargs="?", choices=WAYS)
    parser.add_argument("path", nargs="?", type=Path)
    arguments = parser.parse_args()
    if arguments.way:
        measure(arguments.way, arguments.path)
        return
    rows, failures = [], []
    with tempfile.TemporaryDirectory(dir="/dev/shm") as folder:
        # Not for the processes that measure: it would be part of their memory.
        from benchmarks.data import arms

        os.environ["XDG_CACHE_HOME"] = f"{folder}/cache"
        for size in SIZES:
            path = Path(folder) / str(size) / "first.tfrecord"
            path.parent.mkdir()
            path.write_bytes(arms.tfrecord(size, FILE // (size + 16)))
            # Another object of a mixture.
            path.with_stem("second").hardlink_to(path)
            for one in path.parent.iterdir():
                Dataset(one, batch_size=BATCH)
            measured, exceeded = compare(path, size, arguments.rounds)
            rows += measured
            failures += exceeded
            shutil.rmtree(path.parent)
    headers = ["way", "bytes per record", "bound, MiB", "exact, MiB", "grown, MiB"]
    print(table(rows, [*headers, "with allowance, MiB", "usual: minimum, MiB", "maximum, MiB"]))
    if failures:
        sys.exit("\n".join(["exceeded:", *failures]))


if __name__ == "__main__":
    main()
