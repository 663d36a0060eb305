"""A learning rate whose first step wipes the weights out is warned of at once."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from torch import nn

from tests.rules.inside_trainings import captured, found, stack
from tests.rules.trainings import adam, sgd
from vinedresser.rules.optimisation.learning_rate_too_high import LearningRateTooHigh


def wide() -> nn.Module:
    return stack((64, 256, 10), nn.ReLU)


def narrow() -> nn.Module:
    """Small weights, of which the first step of Adam leaves little, but which learn."""

    def small(weight: torch.Tensor) -> None:
        nn.init.normal_(weight, std=0.01)

    return stack((64, 64, 10), nn.Tanh, small)


@pytest.mark.parametrize(
    ("optimizer", "warned"),
    [
        (sgd(1e4), True),
        (adam(10.0), True),
        (adam(0.5), True),
        (sgd(0.5), False),
        (adam(0.01), False),
    ],
)
def test_a_first_step_that_leaves_nothing_is_warned_of(
    optimizer: Callable[[nn.Module], torch.optim.Optimizer], warned: bool, tmp_path: Path
) -> None:
    rule = LearningRateTooHigh()
    findings = found(captured(tmp_path, [rule], wide, optimizer, steps=30, total=2000), rule)
    expected = [("warning", "learning_rate_too_high", 10)] if warned else []
    assert [(finding.severity, finding.fault, finding.step) for finding in findings[:1]] == expected
    if warned:
        assert "the update of step 0 was" in findings[0].seen


def test_a_single_layer_recovers_from_any_step(tmp_path: Path) -> None:
    rule = LearningRateTooHigh()
    run = captured(
        tmp_path, [rule], lambda: stack((64, 10), nn.ReLU), sgd(20.0), steps=600, total=600
    )
    (losses,) = (loss.values for loss in run.scalars("losses", mode="train").values())
    assert max(losses[1:11]) > 2 * losses[0] > 10 * losses[-50:].mean()
    assert found(run, rule) == []


def test_a_first_step_from_which_the_training_recovers_is_none(tmp_path: Path) -> None:
    rule = LearningRateTooHigh()
    run = captured(tmp_path, [rule], narrow, adam(0.05), steps=30, total=2000)
    updates = run.reductions("l2", "updates")["updates/0.weight"].values[0]
    assert updates > 2 * run.reductions("l2", "weights")["weights/0.weight"].values[0]
    assert found(run, rule) == []
