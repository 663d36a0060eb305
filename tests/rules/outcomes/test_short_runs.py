"""The outcome at the end of runs that are too short to be judged before."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from torch import nn

from tests.rules.inside_trainings import captured, found, stack
from tests.rules.trainings import adam, sgd
from vinedresser.rules.losses.underfitting import Underfitting
from vinedresser.rules.optimisation.learning_rate_too_high import LearningRateTooHigh


def network() -> nn.Module:
    return stack((64, 32, 10), nn.ReLU)


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("optimizer", "steps", "rules"),
    [
        # A warning at once, and a stop.
        (adam(1.0), 90, ["learning_rate_too_high"] * 2),
        (sgd(1e-5), 90, ["underfitting"]),
        (adam(3e-3), 90, []),
        # Two windows of eight looks, one look every five steps, tell nothing before.
        (sgd(1e-5), 60, []),
    ],
    ids=["too high", "too low", "learns", "too short"],
)
def test_a_short_run_is_judged_at_its_end_against_simple_models(
    optimizer: Callable[[nn.Module], torch.optim.Optimizer],
    steps: int,
    rules: list[str],
    tmp_path: Path,
) -> None:
    judges = [LearningRateTooHigh(), Underfitting()]
    run = captured(tmp_path / "run", judges, network, optimizer, steps=steps, total=None)
    assert [one.rule for one in found(run, *judges)] == rules
