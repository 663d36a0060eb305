"""Trainings in torch on the records of `tests.data.origins.numbered`."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn

from tests.data.origins.numbered import CAPTURED, SIZE
from vinedresser import open_run
from vinedresser.capture import Hook
from vinedresser.data import Dataset, TorchLoader
from vinedresser.store.reading.step import Step

Pair = tuple[torch.Tensor, torch.Tensor]


def decode(value: Any) -> tuple[torch.Tensor, int]:
    return torch.tensor([np.nan if one is None else one for one in value["x"]]).float(), value["y"]


def open_data(place: Path, **options: Any) -> Dataset:
    arguments: dict[str, Any] = {"batch_size": SIZE, "decode": decode}
    return Dataset(place, **(arguments | options))


def pairs(dataset: Dataset) -> Iterator[Pair]:
    return (batch.values for batch in TorchLoader(dataset))


def network() -> tuple[nn.Module, nn.Module, torch.optim.Optimizer]:
    """Build the model, its loss and its optimizer; also for replays."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(2, 4), nn.Tanh(), nn.Linear(4, 2))
    return model, nn.CrossEntropyLoss(), torch.optim.SGD(model.parameters(), lr=0.1)


class Training:
    """A training, watched if it has a place for its run."""

    def __init__(self, run: Path | None, **options: Any) -> None:
        self.model, self.loss, self.optimizer = network()
        self.run = run
        self.hook = None
        if run is not None:
            self.hook = Hook(run, **({"collections": CAPTURED} | options))
            self.hook.watch(self.model, loss=self.loss, optimizer=self.optimizer)

    def train(self, batches: Iterable[Pair], *, accumulated: int = 1) -> None:
        for number, (inputs, labels) in enumerate(batches, 1):
            self.loss(self.model(inputs), labels).backward()
            if number % accumulated == 0:
                self.optimizer.step()
                self.optimizer.zero_grad()

    def evaluate(self, batches: Iterable[Pair]) -> None:
        self.model.eval()
        with torch.no_grad():
            for inputs, labels in batches:
                self.loss(self.model(inputs), labels)
        self.model.train()

    def steps(self) -> list[Step]:
        assert self.hook is not None
        assert self.run is not None
        self.hook.close()
        return list(open_run(self.run).follow())
