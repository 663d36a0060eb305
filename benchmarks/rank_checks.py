"""What a hook and checks of ranks cost under DDP: `python -m benchmarks.rank_checks`.

Two gloo ranks train with `DistributedDataParallel`. A check is the CPU time of the training's
thread in a step in which the rules compare the ranks, beyond that of the steps in which only losses
and times are captured; medians of rank 0. Checks are made every fifth step here; the share of a
step is that at the default interval, which is four or ten times as long.

The cost of a hook is that of `benchmarks.overhead`: CPU time of the training's thread compared with
a training without a hook, block by block in turn; medians of rank 0.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import numpy as np
import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from benchmarks.measure import interleave, table
from benchmarks.models import MODELS, Task
from benchmarks.overhead import ARMS, BUDGETS, RULES_ARM, Training
from vinedresser.capture import Hook, SaveConfig
from vinedresser.capture.config.capture_config import CaptureConfig
from vinedresser.rules.base import Rule, capture_for
from vinedresser.rules.ranks.gradient_reduction import GradientReduction
from vinedresser.rules.ranks.rank_data import RankData
from vinedresser.rules.ranks.rank_outlier import RankOutlier
from vinedresser.rules.ranks.replica_divergence import ReplicaDivergence
from vinedresser.rules.ranks.unsynchronised_statistics import UnsynchronisedStatistics

EVERY = 5
# Steps of a block; the needs of the default rules are due in one of 20.
BLOCK = 20
HOOKS = ("plain", "plain again", "hook idle", RULES_ARM)
# By what is captured: the rules, and their default interval.
RULES: dict[str, tuple[list[Rule], int]] = {
    "fingerprints of weights and gradients": ([ReplicaDivergence(EVERY)], 50),
    "gradients of each rank": ([RankOutlier(every=EVERY)], 20),
    "rules with checks every 50 steps": (
        [
            ReplicaDivergence(EVERY),
            GradientReduction(EVERY),
            RankData(EVERY),
            UnsynchronisedStatistics(EVERY),
        ],
        50,
    ),
}


def check(task: Task, rules: list[Rule], folder: Path, checks: int) -> tuple[float, float]:
    """Train on this rank; return the CPU seconds of a check and of an ordinary step."""
    torch.manual_seed(0)
    model = DistributedDataParallel(task.make())
    loss, optimizer = nn.CrossEntropyLoss(), torch.optim.SGD(model.parameters(), lr=0.01)
    x, y = torch.randn(task.shape), torch.randint(0, 10, task.shape[:1])
    often = SaveConfig(every=1)
    plain = CaptureConfig.of({"losses": often, "timing": often})
    collections = capture_for(rules).merged(plain).collections
    took = []
    with Hook(folder, collections=collections).watch(model, loss, optimizer):
        for _ in range(EVERY * (checks + 1)):
            begun = time.thread_time()
            optimizer.zero_grad()
            loss(model(x), y).backward()
            optimizer.step()
            took.append(time.thread_time() - begun)
    # The first check prepares what the others use.
    steps = np.array(took).reshape(-1, EVERY)[1:]
    usual = float(np.median(steps[:, 1:]))
    return float(np.median(steps[:, 0])) - usual, usual


def hooks(name: str, folder: Path, rounds: int) -> Iterator[tuple[str, ...]]:
    """Train on this rank; yield a row for each kind of hook."""
    trainings = {
        one: Training(MODELS[name], ARMS[one][0], folder / one, wrap=DistributedDataParallel)
        for one in HOOKS
    }

    def block(training: Training) -> float:
        # The ranks begin together, whatever their writers do.
        if training.hook is not None:
            training.hook.flush()
        dist.barrier()
        return training.block(BLOCK)[1]

    found = interleave({one: partial(block, each) for one, each in trainings.items()}, rounds)
    for one, seconds in found.items():
        ratios = np.divide(seconds, found["plain"])
        budget = BUDGETS.get(one, {}).get(name)
        yield one, f"{np.median(ratios):.3f}", "" if budget is None else f"{budget}"


def train(name: str, rank: int, folder: Path, checks: int, rounds: int) -> None:
    """Be one rank; rank 0 prints a row for each set of rules and each kind of hook."""
    os.environ |= {"RANK": str(rank), "WORLD_SIZE": "2"}
    torch.set_num_threads(1)
    dist.init_process_group("gloo", f"file://{folder}/meeting", world_size=2, rank=rank)
    rows = []
    for number, (rules, (of, every)) in enumerate(RULES.items()):
        extra, step = check(MODELS[name], of, folder / str(number), checks)
        rows.append(
            (rules, f"{1e3 * step:.1f}", f"{1e3 * extra:.2f}", f"{extra / step / every:.2%}")
        )
    if not rank:
        print(MODELS[name].about)
        print(table(rows, ("captured", "ms/step", "ms/check", "of a step")))
    costs = [*hooks(name, folder, rounds)]
    if not rank:
        print(table(costs, ("hook", "CPU x plain", "budget")))
    dist.destroy_process_group()


def main() -> None:
    """Start both ranks of each training."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", nargs="+", choices=MODELS, default=["resnet", "mlp"])
    parser.add_argument("--checks", type=int, default=40)
    parser.add_argument("--rounds", type=int, default=15, help="of blocks with each kind of hook")
    parser.add_argument("--rank", type=int, help=argparse.SUPPRESS)
    parser.add_argument("--folder", type=Path, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.rank is not None:
        train(given.model[0], given.rank, given.folder, given.checks, given.rounds)
        return
    for name in given.model:
        with tempfile.TemporaryDirectory(dir="/dev/shm") as folder:
            command = [sys.executable, "-m", "benchmarks.rank_checks", "--model", name]
            command += ["--folder", folder, "--checks", str(given.checks)]
            command += ["--rounds", str(given.rounds), "--rank"]
            ranks = [subprocess.Popen([*command, str(rank)]) for rank in (0, 1)]
            codes = [one.wait() for one in ranks]
            if any(codes):
                sys.exit(f"{name}: a rank failed")


if __name__ == "__main__":
    main()
