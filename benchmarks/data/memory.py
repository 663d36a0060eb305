"""Memory of reading 2 GB: `python -m benchmarks.data.memory`.

Each way is a process of its own, which reads the same file eight times as one data set, whose index
is known. The figures are the growth of its peak of resident memory, and the largest memory of its
own that each worker was seen with, beside the bound that docs/data.md states.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from benchmarks.data import arms
from benchmarks.measure import table
from vinedresser.data import Dataset, Mixture, TorchLoader, tf_dataset

BATCH = 256
FILE, TIMES = 256 << 20, 8
SIZES = (1_000, 100_000)
# Bytes that are read ahead, that the allocator keeps, and of a record in the order of a window.
AHEAD, KEPT, ENTRY = 64 << 20, 16 * (4 << 20), 240


def plain(data: Iterable[Any]) -> Iterable[Any]:
    """Return the batches of a data set."""
    return data


def torch_workers(data: Any) -> Iterable[Any]:
    """Return the batches of two workers of PyTorch."""
    return TorchLoader(data, num_workers=2, collate=list)


WAYS: dict[str, tuple[Callable[[Any], Iterable[Any]], dict[str, Any]]] = {
    "in order": (plain, {}),
    "shuffled": (plain, {"seed": 1}),
    "shuffled, 4 lanes": (plain, {"seed": 1, "lanes": 4}),
    "mixture of two classes": (plain, {"classes": 2}),
    "PyTorch, 2 workers": (torch_workers, {"seed": 1, "lanes": 2}),
    "TensorFlow": (tf_dataset, {"seed": 1}),
}


def peak(pid: int | str = "self") -> int:
    """Return the peak of the resident memory of a process in bytes."""
    found = re.search(r"VmHWM:\s+(\d+) kB", Path(f"/proc/{pid}/status").read_text())
    assert found is not None
    return int(found[1]) << 10


def private(pid: int) -> int:
    """Return the memory that a process shares with no other, in bytes."""
    found = re.search(r"Private_Dirty:\s+(\d+) kB", Path(f"/proc/{pid}/smaps_rollup").read_text())
    assert found is not None
    return int(found[1]) << 10


def measure(name: str, path: Path) -> None:
    """Read everything, and print the growth of the peak and the records as JSON."""
    way, options = WAYS[name]
    if way is tf_dataset:
        # Its threads and buffers.
        sum(1 for _ in way(Dataset(path, batch_size=1)).take(1))
    Path("/proc/self/clear_refs").write_text("5")
    before = peak()
    classes = options.get("classes", 0)
    if classes:
        sources: Any = {str(one): [one] * 2 for one in path.parent.glob(f"{path.stem}*")}
        data: Any = Mixture(sources, batch_size=BATCH)
    else:
        data = Dataset([path] * TIMES, batch_size=BATCH, **options)
    records = workers = 0
    for number, batch in enumerate(way(data)):
        records += len(getattr(batch, "values", batch))
        if number % 10 == 0:
            children = [child.pid for child in multiprocessing.active_children()]
            workers = max([workers, *(private(child) for child in children if child)])
    print(json.dumps({"grown": peak() - before, "workers": workers, "records": records}))


def bound(name: str, size: int) -> int:
    """Return the bound of docs/data.md in bytes; with workers, that of each of them."""
    _, options = WAYS[name]
    lanes: int = options.get("lanes", 1)
    # Without a seed, a window is a chunk.
    window = (64 << 20) if "seed" in options or "classes" in options else 4 << 20
    windows = window + window // lanes
    # Those of a worker are copied into shared memory, those for TensorFlow into a tensor.
    batches = 6 if "PyTorch" in name else 3 if name == "TensorFlow" else 2
    return windows + windows // size * ENTRY + AHEAD + KEPT + batches * BATCH * size


def main() -> None:
    """Measure all ways in turn."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("way", nargs="?", choices=WAYS)
    parser.add_argument("path", nargs="?", type=Path)
    arguments = parser.parse_args()
    if arguments.way:
        measure(arguments.way, arguments.path)
        return
    rows = []
    with tempfile.TemporaryDirectory(dir="/dev/shm") as folder:
        os.environ["XDG_CACHE_HOME"] = f"{folder}/cache"
        for size in SIZES:
            path = Path(folder) / f"{size}.tfrecord"
            path.write_bytes(arms.tfrecord(size, FILE // (size + 16)))
            Dataset(path, batch_size=BATCH)
            for name in WAYS:
                command = [sys.executable, "-m", "benchmarks.data.memory", name, str(path)]
                done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True)
                found = json.loads(done.stdout.splitlines()[-1])
                grown = found["grown"], found["workers"], bound(name, size)
                rows.append([name, str(size), *(f"{one / 2**20:.0f}" for one in grown)])
                print(rows[-1], flush=True)
            path.unlink()
    print(table(rows, ["way", "bytes per record", "process, MiB", "worker, MiB", "bound, MiB"]))


if __name__ == "__main__":
    main()
