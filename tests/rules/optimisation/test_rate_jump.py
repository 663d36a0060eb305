"""`learning_rate_too_high`: the learning rate jumps, and what was learned is lost."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from torch import nn

from tests.rules.trainings import batches, digits
from vinedresser.capture import Hook, open_run
from vinedresser.rules.base import capture_for
from vinedresser.rules.judge import judge
from vinedresser.rules.optimisation.learning_rate_too_high import LearningRateTooHigh
from vinedresser.store.finding import Finding

STEPS = 320


def found(directory: Path, factor: Callable[[int], float]) -> list[Finding]:
    """Return the findings in a training whose learning rate changes by step."""
    torch.manual_seed(0)
    torch.set_num_threads(1)
    data, loss = digits(), nn.CrossEntropyLoss()
    model = nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 10))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, factor)
    rule = LearningRateTooHigh()
    collections = capture_for([rule]).collections
    with Hook(directory, collections=collections, total_steps=STEPS) as hook:
        hook.watch(model, loss=loss, optimizer=optimizer)
        rows = batches(len(data.x), 64)
        for _ in range(STEPS):
            chosen = next(rows)
            optimizer.zero_grad()
            loss(model(data.x[chosen]), data.y[chosen]).backward()
            optimizer.step()
            schedule.step()
    return judge(open_run(directory), [rule])


@pytest.mark.thorough
def test_a_jump_after_which_the_loss_stays_high(tmp_path: Path) -> None:
    finding = found(tmp_path / "run", lambda step: 200.0 if step > 150 else 1.0)[0]
    assert (finding.severity, finding.fault) == ("warning", "learning_rate_too_high")
    assert finding.since == 140
    assert finding.step == 220
    assert "jumped from 0.05 to 10 between steps 140 and 160" in finding.seen
    assert "200 times" in finding.cause


@pytest.mark.thorough
@pytest.mark.parametrize(
    "factor",
    [
        # A warm-up, restarts, and a higher rate with which the training goes on to learn.
        lambda step: min(1.0, step / 200),
        lambda step: 1.0 - 0.99 * (step % 100) / 100,
        lambda step: 4.0 if step > 150 else 1.0,
    ],
    ids=["warm-up", "restarts", "higher"],
)
def test_a_rate_that_rises_without_harm(factor: Callable[[int], float], tmp_path: Path) -> None:
    assert found(tmp_path / "run", factor) == []
