"""Seconds of everyday commands on a store, as docs/compared.md has them.

    python -m benchmarks.daily_tasks

Trains a small network with and without mistakes, searches its learning rate, writes 200 runs of
1,000 steps, like `benchmarks.comparison`, and runs each command in a process of its own, so that
its imports count.
"""

from __future__ import annotations

import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

from benchmarks.comparison.__main__ import make_varied

_RUNS, _STEPS, _REPEATS = 200, 1000, 3
# A small training, which takes a second or two by itself, and searches of its learning rate.
_SCRIPT = """
import argparse
import torch
from torch import nn
from sklearn.datasets import load_digits

parser = argparse.ArgumentParser()
parser.add_argument("--lr", type=float, default=0.1)
lr = parser.parse_args().lr
inputs, labels = (torch.tensor(array) for array in load_digits(return_X_y=True))
inputs = inputs.float() / 16
torch.manual_seed(0)
net = nn.Sequential(nn.Linear(64, 32), nn.ReLU(), nn.Linear(32, 10))
optimizer = torch.optim.SGD(net.parameters(), lr=lr)
for step in range(400):
    rows = torch.randint(0, 1400, (32,))
    loss = nn.functional.cross_entropy(net(inputs[rows]), labels[rows])
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if step % 40 == 39:
        with torch.no_grad():
            nn.functional.cross_entropy(net(inputs[1400:]), labels[1400:])
"""
_SWEEP = """
[sweep]
metric = "accuracy"
direction = "maximize"
trials = 12
epochs = 10
[space]
lr = { log = [1e-3, 100.0] }
[run]
name = "search"
command = ["python", "train.py"]
store = "searches"
total_steps = 400
[rules]
preset = "classification"
"""
# Tasks that are done once.
_ONCE = {
    "the script by itself, without vinedresser": "",
    "record an unchanged script, with a verdict at its end": "run train.py",
    "the same with a mistake: be told why it does not learn": "run train.py --lr 50",
    "search 12 configurations, the hopeless ones ended early": "sweep sweep.toml",
    "be told before it trains": "check train.py --lr 50",
}
# Task -> the command, in the folder with the store.
_TASKS = {
    "list all runs with their verdicts": "status runs",
    "be told what is wrong with a run": "judge runs/run-0000",
    "what differs between two runs, and since when": "compare runs/run-0000 runs/run-0100",
    "the same of all 200, as a page": "compare runs",
    "gradients of a layer over the steps": "show runs/run-0000 gradients/0.weight --draw curve.svg",
    "ask a run for what nobody logged": "ask runs/run-0000 max(norm(gradients))",
    "how to run it again as it was": "rerun runs/run-0000",
    "list what is not needed": "gc runs --keep 20",
}


def main() -> None:
    """Measure and print."""
    draw = np.random.default_rng(0)
    with tempfile.TemporaryDirectory() as folder:
        Path(folder, "train.py").write_text(_SCRIPT, encoding="utf-8")
        Path(folder, "sweep.toml").write_text(_SWEEP, encoding="utf-8")
        for task, command in _ONCE.items():
            print(f"{_seconds(command, folder):5.1f} s   {task}   (vinedresser {command})")
        for number in range(_RUNS):
            make_varied(Path(folder, "runs", f"run-{number:04d}"), number, _STEPS, draw)
        for task, command in _TASKS.items():
            seconds = [_seconds(command, folder) for _ in range(_REPEATS)]
            print(f"{statistics.median(seconds):5.1f} s   {task}   (vinedresser {command})")


def _seconds(command: str, folder: str) -> float:
    began = time.perf_counter()
    arguments = ["-m", "vinedresser", *command.split()] if command else ["train.py"]
    done = subprocess.run(
        [sys.executable, *arguments], cwd=folder, capture_output=True, text=True, check=False
    )
    # 1 and 3: it found a problem, or stopped the training.
    if done.returncode not in (0, 1, 3):
        sys.exit(f"vinedresser {command}: exit code {done.returncode}\n{done.stderr}")
    return time.perf_counter() - began


if __name__ == "__main__":
    main()
