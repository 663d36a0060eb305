"""What data loaders and other processes run: of a module, since spawned processes import it."""

from __future__ import annotations

import os
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.data import Dataset

__all__ = ["Features", "train_shared"]


class Features(Dataset[tuple[Tensor, Tensor]]):
    """Rows that went through a model in the worker, with the worker's process id beside them.

    Args:
        model: perhaps a watched one.
        rows: how many.
    """

    def __init__(self, model: nn.Module, rows: int = 16) -> None:
        self.model = model
        self._rows = rows

    def __len__(self) -> int:
        return self._rows

    def __getitem__(self, index: int) -> tuple[Tensor, Tensor]:
        if index >= self._rows:
            raise IndexError
        row = torch.full((1, 2), float(index))
        with torch.no_grad():
            self.model(row)
        return row[0], torch.tensor(os.getpid())


def train_shared(_index: int, model: nn.Module, steps: int, noted: Any) -> None:
    """Train a model whose weights are shared with the process that started this one."""
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    for _ in range(steps):
        optimizer.zero_grad()
        model(torch.ones(1, 2)).sum().backward()
        optimizer.step()
    noted.value = os.getpid()
