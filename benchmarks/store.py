"""What the run store costs: writing against a raw file and memcpy, reading, bytes beside the data.

python -m benchmarks.store [--directory DIR] [--rounds N]
"""

from __future__ import annotations

import argparse
import os
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path
from statistics import median

import numpy as np
from fastcrc import crc32
from numpy.typing import NDArray

from benchmarks.measure import interleave, medians, table
from vinedresser.capture.store.reader import open_run
from vinedresser.capture.store.step_record import StepRecord
from vinedresser.capture.store.writer import RunWriter
from vinedresser.infra.storage import open_storage
from vinedresser.testing.runs import make_run, start_run, step_record

Tensors = dict[str, NDArray[np.float32]]

# A tiny MLP (64-32-32-10) with all its tensors: parameters, gradients, outputs, loss.
MLP_WIDTHS = (64, 32, 32, 10)
BATCH = 16


def large_tensors() -> Tensors:
    """Return 20 tensors of 1 KB to 4 MB, log-uniform: 10 MB a step."""
    generator = np.random.default_rng(0)
    sizes = np.geomspace(1 << 8, 1 << 20, 20).astype(int)
    return {
        f"gradients/layers.{number}.weight": generator.standard_normal(size, np.float32)
        for number, size in enumerate(generator.permutation(sizes))
    }


def resnet_tensors() -> Tensors:
    """Return 157 tensors of 88 MB, as many as a small ResNet18 has in a step."""
    generator = np.random.default_rng(0)
    sizes = generator.permutation(np.geomspace(1 << 6, 1 << 20, 157).astype(int))
    scale = 88e6 / 4 / sizes.sum()
    return {
        f"outputs/layers.{number}": generator.standard_normal(int(size * scale), np.float32)
        for number, size in enumerate(sizes)
    }


def mlp_tensors() -> Tensors:
    """Return the 19 tensors of a step of a tiny MLP."""
    generator = np.random.default_rng(0)
    shapes: dict[str, tuple[int, ...]] = {}
    for layer, (inputs, outputs) in enumerate(pairwise(MLP_WIDTHS)):
        for kind in ("weights", "gradients"):
            shapes[f"{kind}/layers.{layer}.weight"] = (outputs, inputs)
        for kind in ("biases", "gradients"):
            shapes[f"{kind}/layers.{layer}.bias"] = (outputs,)
        shapes[f"outputs/layers.{layer}"] = (BATCH, outputs)
        shapes[f"outputs/relu{layer}"] = (BATCH, outputs)
    shapes["outputs/MLP"] = (BATCH, MLP_WIDTHS[-1])
    return {name: generator.standard_normal(shape, np.float32) for name, shape in shapes.items()}


@contextmanager
def fresh(directory: Path) -> Iterator[Path]:
    """Give a new folder, and remove it again."""
    folder = Path(tempfile.mkdtemp(dir=directory))
    try:
        yield folder
    finally:
        shutil.rmtree(folder)


def timed(work: Callable[[], object]) -> float:
    """Return the seconds that some work takes."""
    begun = time.perf_counter()
    work()
    return time.perf_counter() - begun


def writing_arms(directory: Path, steps: list[Tensors]) -> dict[str, Callable[[], float]]:
    """Return arms that put the same bytes away: by the store, raw, and into memory."""
    records = [step_record(number, tensors=tensors) for number, tensors in enumerate(steps)]
    size = sum(values.nbytes for tensors in steps for values in tensors.values())
    room = np.empty(size, np.uint8)

    def store() -> float:
        with fresh(directory) as folder:
            start_run(folder)
            writer = RunWriter(open_storage(folder))

            def write() -> None:
                for record in records:
                    writer.add(record)
                writer.flush()

            seconds = timed(write)
            writer.close()
            return seconds

    def raw(*, checksums: bool) -> float:
        with fresh(directory) as folder:
            return timed(lambda: write_raw(folder, steps, checksums=checksums))

    def memcpy() -> float:
        return timed(lambda: copy_all(room, steps))

    return {
        "raw file write": lambda: raw(checksums=False),
        "raw file write + CRC32C": lambda: raw(checksums=True),
        "store writer, CRC32C": store,
        "memcpy": memcpy,
    }


def write_raw(folder: Path, steps: list[Tensors], *, checksums: bool) -> None:
    """Write a file a step, with one system call, to a temporary name that is then replaced."""
    for number, tensors in enumerate(steps):
        if checksums:
            for values in tensors.values():
                crc32.iscsi(values.data)
        temporary = folder / ".raw"
        descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o644)
        wanted = sum(values.nbytes for values in tensors.values())
        written = os.writev(descriptor, [values.data for values in tensors.values()])
        os.close(descriptor)
        assert written == wanted
        os.replace(temporary, folder / f"{number}.raw")


def copy_all(room: NDArray[np.uint8], steps: list[Tensors]) -> None:
    """Copy all tensors into memory that is there already."""
    place = 0
    for tensors in steps:
        for values in tensors.values():
            room[place : place + values.nbytes] = values.view(np.uint8).reshape(-1)
            place += values.nbytes


def reading_arms(folder: Path, steps: list[Tensors]) -> dict[str, Callable[[], float]]:
    """Return arms that read from a run of these steps and from raw files of the same tensors."""
    names = sorted(steps[0])
    opened = open_run(folder)
    generator = np.random.default_rng(1)
    raw = folder / "raw"
    raw.mkdir()
    for name in names:
        (raw / name.replace("/", "_")).write_bytes(steps[0][name].tobytes())

    def open_and_read() -> float:
        return timed(lambda: open_run(folder).tensor(names[0]).value(0))

    def read(name: str) -> float:
        step = int(generator.integers(len(steps)))
        return timed(lambda: opened.tensor(name).value(step))

    def read_raw(name: str) -> float:
        path = raw / name.replace("/", "_")
        return timed(lambda: np.frombuffer(path.read_bytes(), np.float32))

    def random_reads(reader: Callable[[str], float]) -> float:
        return median(reader(name) for name in generator.permutation(names))

    return {
        "open": lambda: timed(lambda: open_run(folder)),
        "open + first read": open_and_read,
        "random tensor, p50": lambda: random_reads(read),
        "raw file of the same size, p50": lambda: random_reads(read_raw),
    }


def overhead(directory: Path, record: Callable[[int], StepRecord], steps: int) -> tuple[int, int]:
    """Return the bytes of the tensors and scalars of a run, and all bytes of segments and index."""
    with fresh(directory) as folder:
        run = make_run(folder, (record(number) for number in range(steps)))
        assert len(run.steps()) == steps
        one = record(0)
        payload = one.nbytes() + 8 * (len(one.scalars) + sum(map(len, one.reductions.values())))
        files = [path for part in ("segments", "index") for path in (folder / part).rglob("*.*")]
        return payload * steps, sum(path.stat().st_size for path in files)


def writing_table(directory: Path, steps: list[Tensors], rounds: int) -> str:
    """Measure writing."""
    size = sum(values.nbytes for tensors in steps for values in tensors.values())
    results = interleave(writing_arms(directory, steps), rounds)
    raw = results["raw file write"]
    budgets = {"store writer, CRC32C": ">= 0.80"}
    rows = [
        (
            arm,
            f"{size / median(took) / 1e6:.0f}",
            f"{median(raw) / median(took):.2f}",
            f"{min(raw) / min(took):.2f}",
            budgets.get(arm, ""),
        )
        for arm, took in results.items()
    ]
    each = size / len(steps) / 1e6
    title = f"writing {len(steps)} steps of {len(steps[0])} tensors, {each:.0f} MB a step"
    return title + "\n" + table(rows, ["arm", "MB/s", "of raw", "best of raw's best", "budget"])


def overhead_table(directory: Path) -> str:
    """Count the bytes that are stored beside the data."""
    large, mlp = large_tensors(), mlp_tensors()
    losses = {"losses/CrossEntropyLoss": 0.5}
    statistics = dict.fromkeys(("min", "max", "mean", "l2", "abs_mean", "std"), 0.5)
    kinds: list[tuple[str, int, int, str, Callable[[int], StepRecord]]] = [
        (
            "large tensors, % of their bytes",
            20,
            0,
            "<= 0.5",
            lambda n: step_record(n, tensors=large),
        ),
        ("tiny MLP, bytes per tensor", 1000, 19, "<= 100", lambda n: step_record(n, tensors=mlp)),
        (
            "statistics of the same, bytes per scalar",
            1000,
            19 * len(statistics),
            "<= 16",
            lambda n: step_record(n, reductions=dict.fromkeys(mlp, statistics)),
        ),
        (
            "one loss a step and nothing else, bytes per scalar",
            1000,
            1,
            "",
            lambda n: step_record(n, scalars=losses),
        ),
    ]
    rows = []
    for what, steps, items, budget, record in kinds:
        payload, stored = overhead(directory, record, steps)
        extra = stored - payload
        rows.append(
            (what, f"{extra / (items * steps) if items else 100 * extra / payload:.2f}", budget)
        )
    return "bytes beside the data\n" + table(rows, ["what", "bytes", "budget"])


def reading_table(directory: Path, rounds: int) -> str:
    """Measure reading."""
    steps = [large_tensors() for _ in range(50)]
    with fresh(directory) as folder:
        records = (step_record(number, tensors=tensors) for number, tensors in enumerate(steps))
        make_run(folder, records)
        milliseconds = {
            arm: 1e3 * took
            for arm, took in medians(interleave(reading_arms(folder, steps), 4 * rounds)).items()
        }
        segments = len(list((folder / "segments").rglob("*.safetensors")))
    raw = milliseconds["raw file of the same size, p50"]
    budgets = {"open + first read": "<= 1 ms"}
    rows = [
        (arm, f"{took:.3f}", f"{took / raw:.2f}", budgets.get(arm, ""))
        for arm, took in milliseconds.items()
    ]
    title = f"reading from a run of 50 steps of 20 tensors in {segments} segments"
    return title + "\n" + table(rows, ["arm", "ms", "of raw", "budget"])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--directory", type=Path, help="where to write; a tmpfs shows the store")
    parser.add_argument("--rounds", type=int, default=15)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=arguments.directory) as name:
        directory = Path(name)
        print(f"in {directory}, {arguments.rounds} rounds, medians\n")
        for make, count in ((large_tensors, 16), (resnet_tensors, 2)):
            steps = [make() for _ in range(count)]
            print(writing_table(directory, steps, arguments.rounds), end="\n\n")
        print(overhead_table(directory), end="\n\n")
        print(reading_table(directory, arguments.rounds))


if __name__ == "__main__":
    main()
