"""An evaluation that goes over the training rows and over others is one of the others."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch import Tensor, nn
from torch.utils.data import (
    DataLoader,
    Dataset,
    SubsetRandomSampler,
    TensorDataset,
    random_split,
)
from torch.utils.data.dataloader import _BaseDataLoaderIter

from vinedresser.capture import Hook, SaveConfig, open_run

SAVES = {"inputs": SaveConfig(every=1, modes=("eval",))}
Rows = tuple[Tensor, ...]


def split(way: str) -> tuple[DataLoader[Rows], DataLoader[Rows], DataLoader[Rows]]:
    """Return loaders of the training rows, of the same for evaluations, and of the others."""
    generator = torch.Generator().manual_seed(1)
    x = torch.randn(24, 3, generator=generator)
    rows = TensorDataset(x, x.sum(1, keepdim=True))
    if way == "samplers":
        # Only the loader's sampler tells the rows apart.
        train = DataLoader(rows, 4, sampler=SubsetRandomSampler(range(16), generator))
        return train, train, DataLoader(rows, 4, sampler=SubsetRandomSampler(range(16, 24)))
    kept: Dataset[Rows]
    kept, other = random_split(rows, [16, 8], generator)
    train = DataLoader(kept, 4, shuffle=True, generator=generator)
    again = train if way == "one loader" else DataLoader(kept, 8)
    return train, again, DataLoader(other, 4)


class Loop:
    """A linear model that is trained and evaluated with data loaders."""

    def __init__(self, path: Path | None, loader: DataLoader[Rows]) -> None:
        torch.manual_seed(0)
        self.model = nn.Linear(3, 1)
        self.loss = nn.MSELoss()
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.01)
        self.loader = loader
        self.hook = None if path is None else Hook(path, collections=SAVES)
        if self.hook is not None:
            self.hook.watch(self.model, self.loss, self.optimizer)

    def train(self) -> None:
        self.model.train()
        for x, y in self.loader:
            self.optimizer.zero_grad()
            self.loss(self.model(x), y).backward()
            self.optimizer.step()

    def evaluate(self, loader: DataLoader[Rows]) -> float:
        self.model.eval()
        with torch.no_grad():
            return sum(float(self.loss(self.model(x), y)) * len(x) for x, y in loader) / sum(
                len(x) for x, _ in loader
            )


@pytest.mark.parametrize("way", ["one loader", "two loaders", "samplers"])
@pytest.mark.parametrize("order", ["training rows first", "training rows last", "between"])
def test_only_the_other_rows_are_recorded(way: str, order: str, tmp_path: Path) -> None:
    train, again, other = split(way)
    loop = Loop(tmp_path / "run", train)
    expected = []
    for _ in range(3):
        loop.train()
        if order != "training rows last":
            first = loop.evaluate(other) if order == "between" else None
            loop.evaluate(again)
            second = loop.evaluate(other)
            assert first in (None, pytest.approx(second))
        else:
            second = loop.evaluate(other)
            loop.evaluate(again)
        expected.append(second)
    assert loop.hook is not None
    loop.hook.close()
    assert loop.hook.problems == []
    run = open_run(tmp_path / "run")
    found = run.scalars("losses", mode="eval")["losses/MSELoss"].values.tolist()
    assert found == pytest.approx(expected)
    known = torch.cat([x for x, _ in other])
    for step in run.steps("eval"):
        rows = torch.tensor(run.tensor("inputs/Linear").value(int(step), mode="eval"))
        assert all(bool((row == known).all(1).any()) for row in rows)


def test_training_rows_alone_are_an_evaluation(tmp_path: Path) -> None:
    train, again, _ = split("two loaders")
    loop = Loop(tmp_path / "run", train)
    expected = []
    for _ in range(2):
        loop.train()
        expected.append(loop.evaluate(again))
    assert loop.hook is not None
    loop.hook.close()
    run = open_run(tmp_path / "run")
    found = run.scalars("losses", mode="eval")["losses/MSELoss"].values.tolist()
    assert found == pytest.approx(expected)


def test_what_the_script_saves_is_kept(tmp_path: Path) -> None:
    train, again, other = split("two loaders")
    loop = Loop(tmp_path / "run", train)
    assert loop.hook is not None
    loop.train()
    loop.evaluate(again)
    loop.hook.metric("train_error", 0.25)
    loop.evaluate(other)
    loop.hook.metric("error", 0.5)
    loop.evaluate(again)
    loop.hook.metric("last", 0.75)
    loop.hook.close()
    run = open_run(tmp_path / "run")
    found = run.scalars("metrics", mode="eval")
    values = {name: column.values.tolist() for name, column in found.items()}
    assert values == {"metrics/train_error": [0.25], "metrics/error": [0.5], "metrics/last": [0.75]}


def test_the_data_loader_is_as_before_afterwards(tmp_path: Path) -> None:
    before = _BaseDataLoaderIter.__dict__["__next__"]
    train, _, other = split("two loaders")
    loop = Loop(tmp_path / "run", train)
    loop.train()
    loop.evaluate(other)
    assert loop.hook is not None
    loop.hook.close()
    assert _BaseDataLoaderIter.__dict__["__next__"] is before
