"""Regressions that are no better than the mean of their targets."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch import nn

from vinedresser.capture import Hook, open_run
from vinedresser.rules.base import capture_for
from vinedresser.rules.judge import judge
from vinedresser.rules.losses.underfitting import Underfitting
from vinedresser.store.finding import Finding

_STEPS, _ROWS, _FEATURES = 300, 600, 8


def fitted(related: float, directory: Path, *, rows: int = _ROWS) -> list[Finding]:
    """Fit numbers with a small network, and judge.

    Args:
        related: share of the variance of the targets that the inputs explain.
        directory: directory of the run.
        rows: number of training rows; 0 for new ones in each step.
    """
    torch.manual_seed(0)
    torch.set_num_threads(1)
    model = nn.Sequential(nn.Linear(_FEATURES, 32), nn.ReLU(), nn.Linear(32, 1))
    loss, rule = nn.MSELoss(), Underfitting()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    every = rows or _STEPS * 64
    x = torch.randn(every, _FEATURES)
    told = (x[:, :1] + x[:, 1:2]) / 2**0.5
    y = related**0.5 * told + (1 - related) ** 0.5 * torch.randn(every, 1)
    hook = Hook(directory, collections=capture_for([rule]).collections, total_steps=_STEPS)
    with hook:
        hook.watch(model, loss=loss, optimizer=optimizer)
        for step in range(_STEPS):
            chosen = torch.randint(rows, (64,)) if rows else torch.arange(64) + 64 * step
            optimizer.zero_grad()
            loss(model(x[chosen]), y[chosen]).backward()
            optimizer.step()
    return judge(open_run(directory), [rule])


def test_targets_that_the_inputs_tell_nothing_about(tmp_path: Path) -> None:
    # Some of the targets are memorised by the end.
    (finding,) = fitted(0.0, tmp_path / "run")
    assert (finding.fault, finding.severity) == ("corrupt_labels", "warning")
    assert "R2" in finding.seen


@pytest.mark.thorough
@pytest.mark.parametrize(("related", "rows"), [(0.3, _ROWS), (0.08, 0)])
def test_targets_that_are_mostly_noise(related: float, rows: int, tmp_path: Path) -> None:
    assert fitted(related, tmp_path / "run", rows=rows) == []
