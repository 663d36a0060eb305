"""Additional peak memory of a training with a hook: ``python -m benchmarks.memory``.

Each arm trains in its own process, which reports its peak memory (VmHWM).
"""

from __future__ import annotations

import argparse
import re
import subprocess
import sys
import tempfile
from pathlib import Path
from statistics import median

import torch

from benchmarks.measure import table
from benchmarks.models import MODELS
from benchmarks.overhead import ARMS, Training

__all__ = ["main"]

_SHOWN = (
    "plain",
    "hook idle",
    "losses every step",
    "all tensors every 10",
    "all tensors every step",
    "five reductions every step",
)


def train(model: str, arm: str, steps: int) -> float:
    """Train one arm in this process; return the peak memory of the process in MB."""
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory(prefix="memory-") as folder:
        training = Training(MODELS[model], ARMS[arm][0], Path(folder, "run"))
        for _ in range(steps):
            training.step()
        if training.hook is not None:
            training.hook.close()
    status = Path("/proc/self/status").read_text(encoding="ascii")
    found = re.search(r"VmHWM:\s+(\d+) kB", status)
    assert found is not None
    return int(found[1]) * 1024 / 1e6


def peak(model: str, arm: str, steps: int) -> float:
    """Return the result of `train` in a new process."""
    command = [sys.executable, "-m", "benchmarks.memory", "--model", model]
    arguments = ["--arm", arm, "--steps", str(steps)]
    done = subprocess.run([*command, *arguments], capture_output=True, text=True, check=True)
    return float(done.stdout)


def main() -> None:
    """Run the arms and print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", choices=sorted(MODELS), default="resnet")
    parser.add_argument("--steps", type=int, default=30)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--arm", choices=sorted(ARMS), help="train only this arm, in this process")
    options = parser.parse_args()
    if options.arm:
        print(train(options.model, options.arm, options.steps))
        return
    peaks: dict[str, list[float]] = {name: [] for name in _SHOWN}
    for _ in range(options.rounds):
        for name, found in peaks.items():
            found.append(peak(options.model, name, options.steps))
    plain = median(peaks["plain"])
    rows = [
        (name, f"{median(found):.0f}", f"{median(found) - plain:+.0f}")
        for name, found in peaks.items()
    ]
    print(f"{MODELS[options.model].about}; {options.steps} steps; medians of {options.rounds}")
    print(table(rows, ("arm", "peak MB", "above plain")))


if __name__ == "__main__":
    main()
