"""Evaluations of hidden entries of the training rows, as in collaborative filtering."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch import nn

from tests.rules.trainings import batches, digits
from vinedresser.capture import Hook, open_run
from vinedresser.rules.base import capture_for
from vinedresser.rules.data.leakage.data_leakage import DataLeakage
from vinedresser.rules.judge import judge


@pytest.mark.parametrize(("whole", "severity"), [(True, "info"), (False, "warning")])
def test_training_rows_that_are_completed_are_a_hint(
    whole: bool, severity: str, tmp_path: Path
) -> None:
    torch.manual_seed(0)
    torch.set_num_threads(1)
    rows = digits().x
    known = (torch.rand_like(rows) < 0.7).float()
    # The targets are the rows, or a number that each of them has.
    targets = rows if whole else rows.mean(1, keepdim=True)
    model = nn.Sequential(nn.Linear(64, 32), nn.Sigmoid(), nn.Linear(32, targets.shape[1]))
    loss, optimizer = nn.MSELoss(), torch.optim.Adam(model.parameters(), lr=1e-3)
    with Hook(tmp_path / "run", collections=capture_for([DataLeakage()]).collections) as hook:
        hook.watch(model, loss=loss, optimizer=optimizer)
        for number, chosen in zip(range(120), batches(len(rows), 64), strict=False):
            optimizer.zero_grad()
            loss(model(rows[chosen] * known[chosen]), targets[chosen]).backward()
            optimizer.step()
            if number % 30 == 29:
                model.eval()
                with torch.no_grad():
                    missed = (model(rows[:64] * known[:64]) - targets[:64]).square()
                hook.metric("error", missed.mean())
                model.train()
    (finding,) = judge(open_run(tmp_path / "run"), [DataLeakage()])
    assert finding.severity == severity
