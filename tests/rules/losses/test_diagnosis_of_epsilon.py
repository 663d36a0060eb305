"""An eps of Adam that is far larger than the gradient is named as the cause."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch import nn

from tests.rules.inside_trainings import captured, found
from vinedresser.rules.losses.underfitting import Underfitting


@pytest.mark.thorough
@pytest.mark.parametrize(("epsilon", "count"), [(100.0, 1), (1e-8, 0), (1e-3, 0)])
def test_an_eps_above_the_gradient_is_the_cause(epsilon: float, count: int, tmp_path: Path) -> None:
    def model() -> nn.Module:
        return nn.Sequential(nn.Linear(64, 32), nn.ReLU(), nn.Linear(32, 10))

    def optimizer(model: nn.Module) -> torch.optim.Optimizer:
        return torch.optim.Adam(model.parameters(), lr=0.01, eps=epsilon)

    rule = Underfitting()
    run = captured(tmp_path / "run", [rule], model, optimizer, steps=300, total=300)
    findings = found(run, rule)
    assert [finding.fault for finding in findings] == ["learning_rate_too_low"] * count
    assert all(finding.cause.startswith("eps = 100 of the optimizer is") for finding in findings)
