"""Cost of the run store: writing and reading compared to other formats, and bytes beyond the data.

python -m benchmarks.store [--directory DIR] [--rounds N]
"""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Callable
from pathlib import Path
from statistics import median

import numpy as np
from safetensors import safe_open

from benchmarks.measure import interleave, medians, table
from benchmarks.store_content import (
    Tensors,
    fresh,
    large_tensors,
    mlp_tensors,
    resnet_tensors,
    timed,
)
from benchmarks.store_writing import write_safetensors, writing_arms
from benchmarks.tfrecord_writer import read_tensor, write_step
from vinedresser.store.reading.reader import open_run
from vinedresser.store.step_record import StepRecord
from vinedresser.testing.runs import make_run, step_record


def reading_arms(folder: Path, steps: list[Tensors]) -> dict[str, Callable[[], float]]:
    """Return arms that read the same tensors from a run and from other formats."""
    names = sorted(steps[0])
    opened = open_run(folder)
    generator = np.random.default_rng(1)
    raw = folder / "raw"
    raw.mkdir()
    for name in names:
        (raw / name.replace("/", "_")).write_bytes(steps[0][name].tobytes())
    write_safetensors(raw, 0, steps[0])
    write_step(raw, 0, steps[0])

    def open_and_read() -> float:
        return timed(lambda: open_run(folder).tensor(names[0]).value(0))

    def read(name: str) -> float:
        step = int(generator.integers(len(steps)))
        return timed(lambda: opened.tensor(name).value(step))

    def read_raw(name: str) -> float:
        path = raw / name.replace("/", "_")
        return timed(lambda: np.frombuffer(path.read_bytes(), np.float32))

    def read_safetensors(name: str) -> float:
        def once() -> None:
            with safe_open(raw / "0.safetensors", "numpy") as file:
                file.get_tensor(name)

        return timed(once)

    def read_tfrecord(name: str) -> float:
        return timed(lambda: read_tensor(raw, 0, name))

    def random_reads(reader: Callable[[str], float]) -> float:
        return median(reader(name) for name in generator.permutation(names))

    return {
        "open": lambda: timed(lambda: open_run(folder)),
        "open + first read": open_and_read,
        "random tensor, p50": lambda: random_reads(read),
        "the same from safetensors, p50": lambda: random_reads(read_safetensors),
        "the same from TFRecord + protobuf, p50": lambda: random_reads(read_tfrecord),
        "raw file of the same size, p50": lambda: random_reads(read_raw),
    }


def overhead(directory: Path, record: Callable[[int], StepRecord], steps: int) -> tuple[int, int]:
    """Return the bytes of a run's tensors and scalars, and those of all segments and the index."""
    with fresh(directory) as folder:
        run = make_run(folder, (record(number) for number in range(steps)))
        assert len(run.steps()) == steps
        one = record(0)
        payload = one.nbytes() + 8 * (len(one.scalars) + sum(map(len, one.reductions.values())))
        files = [path for part in ("segments", "index") for path in (folder / part).rglob("*.*")]
        return payload * steps, sum(path.stat().st_size for path in files)


def writing_table(directory: Path, steps: list[Tensors], rounds: int) -> str:
    """Measure writing; return a table."""
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
    title = f"writing {len(steps)} steps of {len(steps[0])} tensors, {each:.0f} MB per step"
    return title + "\n" + table(rows, ["arm", "MB/s", "of raw", "best vs. best raw", "budget"])


def overhead_table(directory: Path) -> str:
    """Count the bytes stored beyond the data; return a table."""
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
            "one loss per step and nothing else, bytes per scalar",
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
    return "bytes beyond the data\n" + table(rows, ["what", "bytes", "budget"])


def reading_table(directory: Path, rounds: int) -> str:
    """Measure reading; return a table."""
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
    parser.add_argument(
        "--directory", type=Path, help="folder to write to; use a tmpfs to measure the store alone"
    )
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
