"""The loss of guessing, compared with the best of many constants."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch import nn

from vinedresser.capture.hook.hook import Hook
from vinedresser.rules.base import capture_for
from vinedresser.rules.data.corrupt_labels import CorruptLabels
from vinedresser.rules.signals.outcomes.guessing import Guessing
from vinedresser.store.reading.reader import open_run


@pytest.mark.parametrize("loss", [nn.L1Loss(), nn.SmoothL1Loss(), nn.HuberLoss()])
def test_the_loss_of_guessing_is_that_of_the_best_constant(loss: nn.Module, tmp_path: Path) -> None:
    generator = torch.Generator().manual_seed(0)
    # Skewed, so that mean and median are apart.
    targets = torch.empty(4096, 1).exponential_(0.5, generator=generator)
    model, rule = nn.Linear(1, 1), CorruptLabels()
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    with Hook(tmp_path / "run", collections=capture_for([rule]).collections) as hook:
        hook.watch(model, loss=loss, optimizer=optimizer)
        for rows in targets.split(64):
            optimizer.zero_grad()
            loss(model(torch.ones_like(rows)), rows).backward()
            optimizer.step()
    guessing = Guessing()
    run = open_run(tmp_path / "run")
    for step in run.follow():
        guessing.batches.update(step)
        guessing.fit.batches.update(step)
        guessing.fit.update(step)
        guessing.update(step)
    # The labels of every fifth step are captured.
    captured = torch.cat(targets.split(64)[::5])
    constants = torch.linspace(0, 6, 601)
    best = min(
        float(loss(torch.full_like(captured, float(constant)), captured)) for constant in constants
    )
    guessed = guessing.loss(type(loss).__name__)
    assert guessed is not None
    assert best * (1 - 1e-4) <= guessed <= best * 1.01
