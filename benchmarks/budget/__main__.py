"""Cost of the default rules with and without a budget: ``python -m benchmarks.budget``.

Trainings without a hook, with a hook without a limit (1), and with the default budget run in turn,
each in a process of its own, since a hook measures its share of the time that passes. The ratios
compare the CPU time of the process per step, of all its threads: medians over the rounds, by
section of the training. Beside the captures, which the budget limits, a hook records losses and
times at each step.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from statistics import median

import torch
from torch import nn

from benchmarks.measure import table
from benchmarks.models import mlp
from vinedresser.capture import Hook, open_run
from vinedresser.rules.base import capture_for
from vinedresser.rules.registry import RULES

# Width and batch of eight linear layers, by name.
_MODELS = {"6 ms": (256, 128), "2 ms": (128, 64)}
_ARMS = {"plain": None, "no limit": 1.0, "budget": 0.02}
_MARKS = (20, 400, 1000, 2000, 3000)


def trained(model: str, share: float | None) -> dict[str, float | list[float]]:
    """Train in this process; return CPU seconds at each mark, and what was captured.

    Args:
        model: key of the models.
        share: budget of the hook; None: no hook.
    """
    torch.set_num_threads(1)
    torch.manual_seed(0)
    width, batch = _MODELS[model]
    network, loss = mlp(256, width, 8), nn.CrossEntropyLoss()
    optimizer = torch.optim.SGD(network.parameters(), lr=0.01)
    inputs, labels = torch.randn(batch, 256), torch.randint(0, 10, (batch,))
    seconds: list[float] = []
    with tempfile.TemporaryDirectory() as folder:
        run = Path(folder, "run")
        hook = None
        if share is not None:
            needs = capture_for([kind() for kind in RULES.values()]).elastic()
            hook = Hook(run, collections=needs.collections, budget=share)
            hook.watch(network, loss, optimizer)
        for step in range(_MARKS[-1]):
            if step in _MARKS:
                seconds.append(time.process_time())
            optimizer.zero_grad()
            loss(network(inputs), labels).backward()
            optimizer.step()
        if hook is None:
            return {"seconds": [*seconds, time.process_time()], "captured": 0, "factor": 0}
        hook.close()
        seconds.append(time.process_time())
        found = open_run(run)
        captured = sum(bool(step.reductions) for step in found.follow())
        return {
            "seconds": seconds,
            "captured": captured,
            "factor": found.info.thinned.get("most", 1),
        }


def _elsewhere(model: str, arm: str) -> dict[str, list[float]]:
    """Return the result of `trained` in a new process."""
    command = [sys.executable, "-m", "benchmarks.budget", "--model", model, "--arm", arm]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    found: dict[str, list[float]] = json.loads(done.stdout)
    return found


def measure(model: str, rounds: int) -> list[list[str]]:
    """Return the rows of the table about one model."""
    results: dict[str, list[dict[str, list[float]]]] = {arm: [] for arm in _ARMS}
    for _ in range(rounds):
        for arm in _ARMS:
            results[arm].append(_elsewhere(model, arm))
    plain = _per_step(results["plain"])
    rows = []
    for arm, found in results.items():
        sections = _per_step(found)
        ratios = [
            f"{median(mine / base for mine, base in zip(section, others, strict=True)):.3f}"
            for section, others in zip(sections, plain, strict=True)
        ]
        about = [str(found[0]["captured"]), str(found[0]["factor"])]
        rows.append([model, arm, f"{median(plain[-1]) * 1e3:.2f}", *ratios, *about])
    return rows


def _per_step(results: Sequence[dict[str, list[float]]]) -> list[list[float]]:
    """Return the CPU seconds per step of each result, by section."""
    return [
        [(one["seconds"][place + 1] - one["seconds"][place]) / (end - begin) for one in results]
        for place, (begin, end) in enumerate(pairwise(_MARKS))
    ]


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=3, help="trainings of each kind")
    parser.add_argument("--model", choices=_MODELS, help="only this model")
    parser.add_argument("--arm", choices=_ARMS, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.arm:
        print(json.dumps(trained(options.model, _ARMS[options.arm])))
        return
    models = [options.model] if options.model else [*_MODELS]
    rows = [row for model in models for row in measure(model, options.rounds)]
    sections = [f"{begin} to {end}" for begin, end in pairwise(_MARKS)]
    print(table(rows, ["step", "hook", "ms", *sections, "statistics", "factor"]))


if __name__ == "__main__":
    main()
