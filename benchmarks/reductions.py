"""Cost of each reduction compared to a copy of the same tensor: python -m benchmarks.reductions.

The copy goes to memory that was used before. "torch" and "numpy" are the time on the training
thread for a float32 tensor on the CPU, as a ratio to the copy in the same round (median over the
rounds). The last column is the time left to the writer thread. Channels are the first axis.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from functools import partial
from statistics import median

import numpy as np
import torch

from benchmarks.measure import interleave, medians, table
from vinedresser.capture.torch_.copies.reductions import take_now
from vinedresser.store.reductions import REDUCTIONS, compute_statistics

__all__ = ["main"]

_FIVE = ("min", "max", "mean", "l2", "std")
_ROWS: dict[str, tuple[str, ...]] = {
    **{word: (word,) for word in (*REDUCTIONS, "abs_mean", "abs_max", "abs_std", "p50")},
    "histogram": ("histogram",),
    "channel_l2": ("channel_l2",),
    "channel_std": ("channel_std",),
    "channel_p99": ("channel_p99",),
    "channel_histogram": ("channel_histogram",),
    ", ".join(_FIVE): _FIVE,
    "the rules': l2, abs_mean": ("l2", "abs_mean"),
    "p1, p50, p99, histogram": ("p1", "p50", "p99", "histogram"),
    "all ten statistics": REDUCTIONS,
}


def seconds(work: Callable[[], object]) -> float:
    start = time.perf_counter()
    work()
    return time.perf_counter() - start


def arms(tensor: torch.Tensor) -> dict[str, Callable[[], float]]:
    """Return the timed arms: the copy, and each row with torch, numpy, and on the writer thread."""
    target = torch.zeros_like(tensor)
    array = tensor.numpy()
    found: dict[str, Callable[[], float]] = {"copy": lambda: seconds(lambda: target.copy_(tensor))}

    def settling(words: frozenset[str]) -> float:
        return seconds(take_now(tensor, words, 0).settle)

    for row, names in _ROWS.items():
        words = frozenset(names)
        found[f"torch {row}"] = partial(seconds, partial(take_now, tensor, words, 0))
        found[f"numpy {row}"] = partial(seconds, partial(compute_statistics, array, words, 0))
        found[f"writer {row}"] = partial(settling, words)
    return found


def report(results: dict[str, list[float]]) -> str:
    """Return the table."""
    copies = results["copy"]

    def ratio(name: str) -> str:
        return f"{median(a / b for a, b in zip(results[name], copies, strict=True)):.2f}"

    later = medians(results)
    rows = []
    for row in _ROWS:
        waiting = later[f"writer {row}"] * 1e3
        left = f"{waiting:.2f}" if waiting > 0.01 else ""
        rows.append((row, ratio(f"torch {row}"), ratio(f"numpy {row}"), left))
    return table(rows, ("reduction", "torch / copy", "numpy / copy", "writer, ms"))


def main() -> None:
    """Time every row and print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--shape", default="512,512,3,3", help="shape of the tensor")
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--threads", type=int, default=1, help="number of torch threads")
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    shape = [int(part) for part in options.shape.split(",")]
    tensor = torch.from_numpy(np.random.default_rng(0).standard_normal(shape, np.float32))
    results = interleave(arms(tensor), options.rounds)
    print(
        f"float32 {shape}, {tensor.nbytes / 1e6:.1f} MB, copied in "
        f"{median(results['copy']) * 1e3:.2f} ms; {options.rounds} rounds, "
        f"{options.threads} thread(s)"
    )
    print(report(results))


if __name__ == "__main__":
    main()
