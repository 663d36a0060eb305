"""Cost of the default rules with and without a budget: ``python -m benchmarks.budget``.

Trainings without a hook, with a hook that records losses and times at each step, with one that
captures what the default rules need without a limit (1), and with the default budget run in turn,
each in a process of its own, since a hook measures its share of the time that passes. The ratios
compare the CPU time of the process per step, of all its threads: medians over the rounds, by
section of the training. "added" is the CPU time of the whole training, of its start and its end
beyond that with losses only, in seconds; "allowed" is the share of its time and the initial
allowance.

With ``--ranks 2``, gloo ranks train with `DistributedDataParallel`, and the figures are those of
rank 0, which decides for all.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from statistics import median
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from benchmarks.measure import table
from benchmarks.models import mlp
from vinedresser.capture import Hook, open_run
from vinedresser.capture.recording.budget import CREDIT, DEFAULT_SHARE
from vinedresser.rules.base import capture_for
from vinedresser.rules.registry import RULES

# Width and batch of eight linear layers, by name.
_MODELS = {"20 ms": (384, 192), "6 ms": (256, 128), "2 ms": (128, 64)}
# Shares of the time for the captures that rules need; 0: none of them.
_ARMS = {"plain": None, "losses": 0.0, "no limit": 1.0, "budget": DEFAULT_SHARE}
# Steps at which sections begin; the last one is the end.
_MARKS = {
    "20 ms": (20, 200, 500, 1000, 1500),
    "6 ms": (20, 400, 1000, 2000, 3000),
    "2 ms": (20, 400, 1000, 2000, 3000),
}


def trained(model: str, share: float | None, shared: Path) -> dict[str, float | list[float]]:
    """Train in this process; return CPU seconds at each mark, and what was captured.

    Args:
        model: key of the models.
        share: budget of the hook; 0: no captures for rules; None: no hook.
        shared: folder of all ranks of the training.
    """
    began = time.perf_counter()
    marks = _MARKS[model]
    torch.set_num_threads(1)
    torch.manual_seed(0)
    width, batch = _MODELS[model]
    network: nn.Module = mlp(256, width, 8)
    loss = nn.CrossEntropyLoss()
    rank, world = int(os.environ.get("RANK", "0")), int(os.environ.get("WORLD_SIZE", "1"))
    if world > 1:
        dist.init_process_group("gloo", f"file://{shared}/meeting", world_size=world, rank=rank)
        network = DistributedDataParallel(network)
    optimizer = torch.optim.SGD(network.parameters(), lr=0.01)
    inputs, labels = torch.randn(batch, 256), torch.randint(0, 10, (batch,))
    seconds: list[float] = []
    run = shared / "run"
    hook = None
    if share is not None:
        needs = capture_for([kind() for kind in RULES.values()]).elastic()
        collections = {
            name: one
            for name, one in needs.collections.items()
            if share or not any(save.elastic for save in one.saves)
        }
        hook = Hook(run, collections=collections, budget=share or DEFAULT_SHARE)
        hook.watch(network, loss, optimizer)
    for step in range(marks[-1]):
        if step in marks:
            seconds.append(time.process_time())
        optimizer.zero_grad()
        loss(network(inputs), labels).backward()
        optimizer.step()
    seconds.append(time.process_time())
    if hook is not None:
        hook.close()
    result: dict[str, float | list[float]] = {
        "seconds": seconds,
        "cpu": time.process_time(),
        "wall": time.perf_counter() - began,
    }
    if hook is None:
        return {**result, "captured": 0, "factor": 0}
    found = open_run(run)
    captured = sum(bool(step.reductions) for step in found.follow() if step.rank == 0)
    return {**result, "captured": captured, "factor": found.info.thinned.get("most", 1)}


def _elsewhere(model: str, arm: str, ranks: int) -> dict[str, Any]:
    """Return the result of `trained` in new processes, that of rank 0."""
    command = [sys.executable, "-m", "benchmarks.budget", "--model", model, "--arm", arm]
    with tempfile.TemporaryDirectory() as shared:
        begun = [
            subprocess.Popen(
                [*command, "--shared", shared],
                stdout=subprocess.PIPE,
                text=True,
                env=os.environ | {"RANK": str(rank), "WORLD_SIZE": str(ranks)},
            )
            for rank in range(ranks)
        ]
        printed = [process.communicate()[0] for process in begun]
    if any(process.returncode for process in begun):
        sys.exit(f"{model}, {arm}: a training failed")
    found: dict[str, Any] = json.loads(printed[0])
    return found


def measure(model: str, rounds: int, ranks: int) -> list[list[str]]:
    """Return the rows of the table about one model."""
    results: dict[str, list[dict[str, Any]]] = {arm: [] for arm in _ARMS}
    for _ in range(rounds):
        for arm in _ARMS:
            results[arm].append(_elsewhere(model, arm, ranks))
    plain = _per_step(results["plain"], model)
    rows = []
    for arm, found in results.items():
        sections = _per_step(found, model)
        ratios = [
            f"{median(mine / base for mine, base in zip(section, others, strict=True)):.3f}"
            for section, others in zip(sections, plain, strict=True)
        ]
        about = [str(found[0]["captured"]), str(found[0]["factor"])]
        cost = ["", ""] if arm in ("plain", "losses") else _cost(found, results["losses"])
        rows.append([model, arm, f"{median(plain[-1]) * 1e3:.2f}", *ratios, *cost, *about])
    return rows


def _cost(found: Sequence[dict[str, Any]], losses: Sequence[dict[str, Any]]) -> list[str]:
    """Return the CPU seconds that captures for rules added, and those that the budget allows."""
    added = median(mine["cpu"] - base["cpu"] for mine, base in zip(found, losses, strict=True))
    allowed = CREDIT + DEFAULT_SHARE * median(one["wall"] for one in found)
    return [f"{added:.2f}", f"{allowed:.2f}"]


def _per_step(results: Sequence[dict[str, Any]], model: str) -> list[list[float]]:
    """Return the CPU seconds per step of each result, by section."""
    return [
        [
            (result["seconds"][place + 1] - result["seconds"][place]) / (end - begin)
            for result in results
        ]
        for place, (begin, end) in enumerate(pairwise(_MARKS[model]))
    ]


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=3, help="trainings of each kind")
    parser.add_argument("--model", choices=_MODELS, help="only this model")
    parser.add_argument("--ranks", type=int, default=1, help="processes of each training")
    parser.add_argument("--arm", choices=_ARMS, help=argparse.SUPPRESS)
    parser.add_argument("--shared", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.arm:
        print(json.dumps(trained(options.model, _ARMS[options.arm], options.shared)))
        return
    models = [options.model] if options.model else [*_MODELS]
    for model in models:
        sections = [f"{begin} to {end}" for begin, end in pairwise(_MARKS[model])]
        cost = ["added, s", "allowed, s", "statistics", "factor"]
        print(
            table(
                measure(model, options.rounds, options.ranks),
                ["step", "hook", "ms", *sections, *cost],
            )
        )
        print(flush=True)


if __name__ == "__main__":
    main()
