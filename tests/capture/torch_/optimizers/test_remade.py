"""Optimizers that are made anew do not fill the record of the run."""

from __future__ import annotations

from pathlib import Path

import torch
from torch import nn

from vinedresser.capture.hook.hook import Hook
from vinedresser.store.reading.reader import open_run


def test_an_optimizer_that_is_made_at_each_step_is_counted_not_listed(tmp_path: Path) -> None:
    model = nn.Linear(2, 1)
    with Hook(tmp_path / "run") as hook:
        hook.watch(model)
        for _ in range(20):
            optimizer = torch.optim.Adam(model.parameters())
            model(torch.ones(1, 2)).sum().backward()
            optimizer.step()
    (told,) = open_run(tmp_path / "run").info.optimizers
    assert (told["type"], told["tensors"], told["made"]) == ("Adam", 2, 16)


def test_optimizers_of_other_parameters_or_beside_each_other_are_listed(tmp_path: Path) -> None:
    model = nn.ModuleList([nn.Linear(2, 1), nn.Linear(2, 1)])
    with Hook(tmp_path / "run") as hook:
        hook.watch(model)
        first = torch.optim.SGD(model[0].parameters(), lr=0.1)
        second = torch.optim.SGD(model[0].parameters(), lr=0.2)
        third = torch.optim.SGD(model[1].parameters(), lr=0.3)
        for _ in range(3):
            for part, optimizers in zip(model, ([first, second], [third]), strict=True):
                part(torch.ones(1, 2)).sum().backward()
                for optimizer in optimizers:
                    optimizer.step()
    told = open_run(tmp_path / "run").info.optimizers
    assert [one["settings"]["lr"] for one in told] == [0.1, 0.2, 0.3]
    assert not any("made" in one for one in told)
