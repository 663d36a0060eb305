"""Scores that a temperature makes too small are told from a model that learns nothing."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
import torch.nn.functional as F  # noqa: N812 (the usual name)
from torch import Tensor, nn

from tests.rules.inside_trainings import captured, found
from vinedresser.rules.losses.loss_not_decreasing import LossNotDecreasing


class Cosines(nn.Module):
    """Cosines of digits and classes, divided by a temperature."""

    def __init__(self, temperature: float) -> None:
        super().__init__()
        self.embed, self.classes = nn.Linear(64, 16), nn.Linear(16, 10, bias=False)
        self.temperature = temperature

    def forward(self, x: Tensor) -> Tensor:
        """Return scores [N, 10] of rows [N, 64]."""
        near = F.linear(F.normalize(self.embed(x)), F.normalize(self.classes.weight))
        return near / self.temperature


def adam(model: nn.Module) -> torch.optim.Optimizer:
    return torch.optim.Adam(model.parameters(), lr=5e-3)


@pytest.mark.thorough
@pytest.mark.parametrize(("temperature", "faults"), [(200.0, ["loss_output_mismatch"]), (0.1, [])])
def test_a_temperature_that_is_far_too_high_is_named(
    temperature: float, faults: list[str], tmp_path: Path
) -> None:
    rule = LossNotDecreasing()
    run = captured(tmp_path / "run", [rule], lambda: Cosines(temperature), adam)
    findings = found(run, rule)
    assert [one.fault for one in findings] == faults
    for finding in findings:
        assert finding.severity == "warning"
        assert "temperature" in finding.cause


def shuffled(model: nn.Module, step: int) -> None:
    """Replace the gradients by noise of their size."""
    for parameter in model.parameters():
        assert parameter.grad is not None
        parameter.grad = torch.randn_like(parameter.grad) * parameter.grad.std()


@pytest.mark.thorough
def test_scores_that_are_flat_and_wrong_are_not_those_of_a_temperature(tmp_path: Path) -> None:
    rule = LossNotDecreasing()
    run = captured(tmp_path / "run", [rule], lambda: Cosines(200.0), adam, before_step=shuffled)
    assert "loss_output_mismatch" not in [one.fault for one in found(run, rule)]
