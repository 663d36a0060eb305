"""The functions of a small pruning: a torch network whose figure is the share of filters left."""

from __future__ import annotations

import math
import os
import signal
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn

from vinedresser.capture import Hook
from vinedresser.pruning import GroupTensors

FILTERS = 24
# What the evaluations of a pruned model in a process are, in their order.
_KEPT: list[nn.Module] = []
_EVALUATIONS = ["before", "after"]


def reach(phase: str) -> None:
    """Kill this process in the phase $HOLD, or wait there for its end, once; see `test_prune_flow`.

    Args:
        phase: the phase that is reached.
    """
    if os.environ.get("HOLD") != phase:
        return
    mark = Path(os.environ["MARK"])
    if mark.exists():
        return
    mark.touch()
    if os.environ["UNTIL"] == "killed":
        os.kill(os.getpid(), signal.SIGKILL)
    while not mark.with_suffix(".released").exists():
        time.sleep(0.05)


def network() -> nn.Sequential:
    """Return the network with random weights."""
    return nn.Sequential(
        *(nn.Conv2d(1, 8, 3), nn.ReLU(), nn.Conv2d(8, 16, 3), nn.ReLU()),
        *(nn.Flatten(), nn.Linear(64, 3)),
    )


def pretrain(model: nn.Module) -> None:
    """Give the network the same weights each time."""
    reach("weights")
    torch.manual_seed(0)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.normal_(0, 0.1)


def example() -> Tensor:
    """Return an input of the network, float32 [2, 1, 6, 6]."""
    return torch.linspace(-1, 1, 72).reshape(2, 1, 6, 6)


def train(model: nn.Module, hook: Hook, lr: float = 0.01, steps: int = 5, kind: str = "") -> None:
    """Fine-tune the network; ``kind`` says what goes wrong."""
    optimizer = torch.optim.SGD(model.parameters(), lr=lr)
    loss = nn.CrossEntropyLoss()
    hook.watch(model, loss=loss, optimizer=optimizer)
    reach("train")
    for _ in range(steps):
        optimizer.zero_grad()
        value = loss(model(example()), torch.tensor([0, 2]))
        if kind == "nan":
            value = value * math.nan
        value.backward()
        optimizer.step()
        if kind in ("nan", "patient") and not value.isfinite():
            time.sleep(0.5)  # until a rule stops it
    if kind == "last":
        # The weights stay finite, and the training is over before a rule has seen it.
        loss(model(example() * math.nan), torch.tensor([0, 2]))
        optimizer.zero_grad()
        optimizer.step()
    if kind == "crash":
        raise RuntimeError("the data is gone")
    if kind == "exit":
        sys.exit(0)


def train_together(model: nn.Module, hook: Hook, lr: float) -> None:
    """Fine-tune the network with several ranks."""
    dist.init_process_group("gloo")
    together = nn.parallel.DistributedDataParallel(model)
    optimizer = torch.optim.SGD(together.parameters(), lr=lr)
    loss = nn.CrossEntropyLoss()
    hook.watch(together, loss=loss, optimizer=optimizer)
    for _ in range(5):
        optimizer.zero_grad()
        loss(together(example() + dist.get_rank()), torch.tensor([0, 2])).backward()
        optimizer.step()
    # Kept to the end: freeing a gloo group right after a step hangs now and then in torch 2.13.
    _KEPT.append(together)
    dist.barrier()


def train_student(model: nn.Module, hook: Hook, teacher: nn.Module) -> None:
    """Fine-tune the network on the outputs of the unpruned one."""
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    hook.watch(model, optimizer=optimizer)
    wanted = teacher(example()).detach()
    assert sum(filters(teacher)) == FILTERS
    nn.functional.mse_loss(model(example()), wanted).backward()
    optimizer.step()


def filters(model: Any) -> list[int]:
    """Return the numbers of filters."""
    return [one.out_channels for one in model if isinstance(one, nn.Conv2d)]


def evaluate(model: Any) -> float:
    """Return the share of filters that are left."""
    if os.environ.get("HOLD") in {"before", "after"} and sum(filters(model)) < FILTERS:
        reach(_EVALUATIONS.pop(0))
    return sum(filters(model)) / FILTERS


def undefined(_model: Any) -> float:
    """Return what cannot be compared."""
    return math.nan


def losses(model: nn.Module) -> Iterator[Tensor]:
    """Yield the losses of two batches."""
    reach("losses")
    for place in range(2):
        yield nn.functional.cross_entropy(model(example() + place), torch.tensor([0, 2]))


def first_filters(group: GroupTensors) -> Any:
    """Score filters by their number: a criterion of the user's."""
    import numpy as np

    return np.arange(group.group.size, dtype=np.float64)
