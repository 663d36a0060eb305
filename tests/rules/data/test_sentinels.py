"""`target_leakage`: columns that are known only of one of two classes."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

from vinedresser.capture import Hook
from vinedresser.rules.base import capture_for
from vinedresser.rules.data.leakage.target_leakage import TargetLeakage
from vinedresser.rules.judge import judge
from vinedresser.store.finding import Finding
from vinedresser.store.reading.reader import open_run


def _classify(folder: Path, x: Tensor, y: Tensor, loss: nn.Module, width: int) -> list[Finding]:
    """Train on rows [rows, columns] and return the findings."""
    rules = [TargetLeakage()]
    model = nn.Sequential(nn.Linear(x.shape[1], 16), nn.ReLU(), nn.Linear(16, width))
    if width == 1:
        model.append(nn.Flatten(0))
    optimizer = torch.optim.Adam(model.parameters())
    hook = Hook(folder, collections=capture_for(rules).collections)
    with hook.watch(model, loss, optimizer):
        for _ in range(80):
            rows = torch.randint(len(x), (48,))
            optimizer.zero_grad()
            loss(model(x[rows]), y[rows]).backward()
            optimizer.step()
    return [one for one in judge(open_run(folder), rules) if one.fault]


def _patients() -> tuple[Tensor, Tensor]:
    """Return measurements [rows, columns] and whether there was an event, int64 [rows]."""
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(600, 5, generator=generator)
    y = (x[:, 0] + torch.randn(600, generator=generator) > 0.5).long()
    return x, y


@pytest.mark.thorough
@pytest.mark.parametrize("width", [1, 2])
@pytest.mark.parametrize("other", [0, 1])
def test_a_column_that_is_known_only_of_one_class(width: int, other: int, tmp_path: Path) -> None:
    x, y = _patients()
    days = 30 * torch.rand(len(y)) + 1
    # Standardised, as a pipeline does it: the fixed number is not 0.
    x[:, 3] = torch.where(y == other, days, 0.0)
    x[:, 3] = (x[:, 3] - x[:, 3].mean()) / x[:, 3].std()
    loss = nn.BCEWithLogitsLoss() if width == 1 else nn.CrossEntropyLoss()
    wanted = y.float() if width == 1 else y
    (finding,) = _classify(tmp_path / "run", x, wanted, loss, width)
    assert finding.evidence["columns"] == [3]
    assert (finding.fault, finding.severity) == ("data_leakage", "warning")


@pytest.mark.parametrize("kind", ["apart", "known of some", "grey levels", "three classes"])
def test_columns_that_are_known_of_both(kind: str, tmp_path: Path) -> None:
    x, y = _patients()
    amount = 1 + torch.rand(len(y))
    if kind == "apart":
        # Separable by a threshold, as irises are.
        x[:, 3] = torch.where(y == 1, amount, -amount)
    elif kind == "known of some":
        # Most of those with the event have it.
        x[:, 3] = torch.where((y == 1) & (torch.rand(len(y)) < 0.9), amount, 0.0)
    elif kind == "grey levels":
        # A pixel that is black in all pictures of one class.
        x[:, 3] = torch.where(y == 1, (16 * amount).round() / 16, 0.0)
    else:
        x[:, 3] = torch.where(y == 1, amount, 0.0)
        y = torch.where(torch.rand(len(y)) < 0.3, 2, y)
    assert _classify(tmp_path / "run", x, y, nn.CrossEntropyLoss(), 3) == []
