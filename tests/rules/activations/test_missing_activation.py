"""Layers without an activation between them are found where a linear model is too little."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

from tests.rules.inside_trainings import captured, found
from tests.rules.trainings import Data
from vinedresser.rules.activations.missing_activation import MissingActivation
from vinedresser.store.finding import Finding


def rings() -> Data:
    """Return points of the plane, and whether they are in the inner of two rings."""
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(1024, 2, generator=generator)
    return Data(x, (x.norm(dim=1) < 1.18).long(), x, x)


def halves() -> Data:
    """Return points of the plane, and on which side of a line they are."""
    points = rings()
    return Data(points.x, (points.x.sum(1) > 0).long(), points.x, points.x)


def judged(path: Path, model: Callable[[], nn.Module], data: Data) -> list[Finding]:
    rule = MissingActivation()
    adam = lambda net: torch.optim.Adam(net.parameters(), lr=1e-2)  # noqa: E731
    return found(captured(path, [rule], model, adam, data=data), rule)


def stacked(between: Callable[[], nn.Module]) -> nn.Module:
    layers = [nn.Linear(2, 16), nn.BatchNorm1d(16), between(), nn.Linear(16, 2)]
    return nn.Sequential(*layers)


@pytest.mark.thorough
def test_a_linear_model_of_rings_is_found(tmp_path: Path) -> None:
    findings = judged(tmp_path / "run", lambda: stacked(nn.Identity), rings())
    assert [finding.fault for finding in findings] == ["missing_activation"]
    assert findings[0].evidence["linear"] == ["weights/0.weight", "weights/3.weight"]


def test_what_the_first_backward_pass_tells_is_learned_later(tmp_path: Path) -> None:
    """A live judge begins with the record of a run that has hardly begun."""
    rule, data = MissingActivation(), rings().subset(64)
    adam = lambda net: torch.optim.Adam(net.parameters(), lr=1e-2)  # noqa: E731
    run = captured(tmp_path / "run", [rule], lambda: stacked(nn.Identity), adam, data=data, steps=2)
    step = next(iter(run.follow()))
    rule.on_record(replace(run.info, linear=[]))
    assert rule.detect(step) is None
    rule.on_record(run.info)
    assert rule.detect(step) is not None


class ByHand(nn.Module):
    """A relu that is no function of torch."""

    def forward(self, x: Tensor) -> Tensor:
        """Return what is above 0."""
        return x * (x > 0)


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("between", "data"),
    [(nn.ReLU, rings), (ByHand, rings), (nn.Identity, halves)],
)
def test_others_are_not(
    between: Callable[[], nn.Module], data: Callable[[], Data], tmp_path: Path
) -> None:
    assert judged(tmp_path / "run", lambda: stacked(between), data()) == []
