"""The end of a run that has learned nothing, of rows for which there are no simple models."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

from vinedresser.capture import Hook, open_run
from vinedresser.rules.base import capture_for
from vinedresser.rules.judge import judge
from vinedresser.rules.losses.underfitting import Underfitting
from vinedresser.store.finding import Finding

_STEPS = 600


class Pairs(nn.Module):
    """Scores of pairs of ids, int64 [N, 2]."""

    def __init__(self) -> None:
        super().__init__()
        self.tables = nn.ModuleList(nn.Embedding(40, 8) for _ in range(2))

    def forward(self, ids: Tensor) -> Tensor:
        first, second = (table(ids[:, place]) for place, table in enumerate(self.tables))
        scores: Tensor = (first * second).sum(1)
        return scores


def chosen(strength: float, directory: Path, *, told: bool) -> list[Finding]:
    """Learn which pairs of ids were chosen, and judge.

    Args:
        strength: how far the chance of a pair depends on it: 0 for not at all.
        directory: directory of the run.
        told: whether a metric tells that the ranking is learned.
    """
    torch.manual_seed(0)
    torch.set_num_threads(1)
    model, loss, rule = Pairs(), nn.BCEWithLogitsLoss(), Underfitting()
    optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
    worth = torch.randn(40)
    hook = Hook(directory, collections=capture_for([rule]).collections, total_steps=_STEPS)
    with hook:
        hook.watch(model, loss=loss, optimizer=optimizer)
        for step in range(_STEPS):
            ids = torch.randint(40, (128, 2))
            chance = (strength * (worth[ids[:, 0]] + worth[ids[:, 1]])).sigmoid()
            optimizer.zero_grad()
            loss(model(ids), torch.bernoulli(chance)).backward()
            optimizer.step()
            if told and step % 100 == 99:
                hook.metric("val_auc", 0.61)
    return judge(open_run(directory), [rule])


@pytest.mark.thorough
def test_labels_that_nothing_tells(tmp_path: Path) -> None:
    (finding,) = chosen(0.0, tmp_path / "run", told=False)
    assert (finding.rule, finding.severity) == ("underfitting", "warning")
    assert finding.step == _STEPS - 1
    assert "where guessing gives 0.5" in finding.seen
    assert finding.confidence < 0.7


@pytest.mark.thorough
@pytest.mark.parametrize(("strength", "told"), [(2.0, False), (0.0, True)])
def test_what_is_learned_or_ranked(strength: float, *, told: bool, tmp_path: Path) -> None:
    assert chosen(strength, tmp_path / "run", told=told) == []


@pytest.mark.thorough
def test_numbers_that_nobody_can_predict_stop_no_run(tmp_path: Path) -> None:
    torch.manual_seed(0)
    torch.set_num_threads(1)
    # Daily returns: the outputs are still larger than their targets, which are mere noise.
    x, y = torch.randn(3000, 20), 0.01 * torch.randn(3000, 1)
    model = nn.Sequential(nn.Linear(20, 32), nn.ReLU(), nn.Dropout(0.5), nn.Linear(32, 1))
    loss, rule = nn.HuberLoss(), Underfitting()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    collections = capture_for([rule]).collections
    with Hook(tmp_path / "run", collections=collections, total_steps=_STEPS) as hook:
        hook.watch(model, loss=loss, optimizer=optimizer)
        for _ in range(_STEPS):
            rows = torch.randint(len(x), (64,))
            optimizer.zero_grad()
            loss(model(x[rows]), y[rows]).backward()
            optimizer.step()
    (finding,) = judge(open_run(tmp_path / "run"), [rule])
    assert (finding.fault, finding.severity) == ("corrupt_labels", "warning")
    assert "where the mean of the labels has 0" in finding.seen
