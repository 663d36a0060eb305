"""Shared helpers of tests of function calls."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from vinedresser.capture import Hook, SaveConfig, open_run
from vinedresser.store.reading.reader import Run

__all__ = ["ALWAYS", "BOTH", "Calls", "step_on"]

ALWAYS = SaveConfig(every=1)

BOTH = {"inputs": ALWAYS, "outputs": ALWAYS}


class Calls(nn.Module):
    """Calls a function on the output of a layer."""

    def __init__(self, function: Callable[[Tensor], Tensor]) -> None:
        super().__init__()
        torch.manual_seed(4)
        self.linear = nn.Linear(3, 4)
        self.function = function

    def forward(self, x: Tensor) -> Tensor:
        return self.function(self.linear(x))


def step_on(
    model: nn.Module, path: Path, x: Tensor, collections: dict[str, Any] | None = None
) -> tuple[Run, list[str]]:
    """Take one step of a model; return the run and the reported problems."""
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with Hook(path, collections=collections or BOTH) as hook:
        hook.watch(model, optimizer=optimizer)
        model(x).sum().backward()
        optimizer.step()
    return open_run(path), hook.problems
