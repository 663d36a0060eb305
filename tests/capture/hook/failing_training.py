"""A small training through a hook, and the same without one."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from torch import nn

from vinedresser.capture import Hook, SaveConfig

__all__ = ["STEPS", "train", "train_plainly"]

STEPS = 4


def train_plainly() -> list[float]:
    """Return the loss of each step and the sum of the weights at the end."""
    return _train(None)


def train(folder: Path) -> dict[str, Any]:
    """Train through a hook whose run is the folder; return the numbers and reported problems."""
    collections = {name: SaveConfig(every=1, tensor=True) for name in ("weights", "gradients")}
    hook = Hook(folder, collections=collections)
    numbers = _train(hook)
    hook.close()
    return {"numbers": numbers, "problems": hook.problems}


def _train(hook: Hook | None) -> list[float]:
    torch.set_num_threads(1)
    torch.manual_seed(0)
    model, loss = nn.Sequential(nn.Linear(4, 3), nn.ReLU(), nn.Linear(3, 1)), nn.MSELoss()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    if hook is not None:
        hook.watch(model, loss, optimizer)
    numbers = []
    for _ in range(STEPS):
        optimizer.zero_grad()
        value = loss(model(torch.randn(5, 4)), torch.randn(5, 1))
        value.backward()
        optimizer.step()
        numbers.append(value.item())
        if hook is not None:
            # One segment for each step.
            hook.flush()
    return [*numbers, sum(parameter.sum().item() for parameter in model.parameters())]
