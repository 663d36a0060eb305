"""A warm-up that is far longer than the run is found; those of healthy trainings are ignored."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from torch import nn
from torch.optim.lr_scheduler import LambdaLR

from tests.rules.inside_trainings import found, stack
from tests.rules.trainings import batches, digits
from vinedresser.capture.hook.hook import Hook
from vinedresser.rules.base import capture_for
from vinedresser.rules.optimisation.scheduler_not_stepped import SchedulerNotStepped
from vinedresser.store.finding import Finding
from vinedresser.store.reading.reader import open_run

# Attention is all you need, section 5.3, for 64 numbers of the model.
NOAM = lambda step: 64**-0.5 * min((step + 1) ** -0.5, (step + 1) * 4000**-1.5)  # noqa: E731


def judged(path: Path, factor: Callable[[int], float], rate: float) -> list[Finding]:
    """Train on digits for 240 steps at a rate times a factor of the step."""
    torch.manual_seed(0)
    torch.set_num_threads(1)
    data, loss = digits(), nn.CrossEntropyLoss()
    model = stack((64, 32, 10), nn.ReLU)
    optimizer = torch.optim.Adam(model.parameters(), lr=rate)
    scheduler = LambdaLR(optimizer, factor)
    rule = SchedulerNotStepped()
    with Hook(path, collections=capture_for([rule]).collections) as hook:
        hook.watch(model, loss=loss, optimizer=optimizer)
        rows = batches(len(data.x), 64)
        for _ in range(240):
            chosen = next(rows)
            optimizer.zero_grad()
            loss(model(data.x[chosen]), data.y[chosen]).backward()
            optimizer.step()
            scheduler.step()
    return found(open_run(path), rule)


@pytest.mark.thorough
def test_a_warm_up_of_a_hundred_runs_is_found_at_the_end(tmp_path: Path) -> None:
    (finding,) = judged(tmp_path / "run", lambda step: (step + 1) / 24000, 1e-3)
    assert (finding.severity, finding.fault) == ("warning", "learning_rate_too_low")
    assert finding.step == 239
    assert finding.value == pytest.approx(0.01, rel=0.1)
    assert "the warm-up is far longer than the run" in finding.cause


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("factor", "rate"),
    [
        (lambda step: min(1.0, (step + 1) / 24), 1e-2),
        # The whole run, to the rate of the optimizer.
        (lambda step: (step + 1) / 240, 1e-2),
        # Far below the rate of the optimizer, which is none: the training learns.
        (NOAM, 20.0),
    ],
)
def test_warm_ups_of_trainings_that_learn_are_ignored(
    factor: Callable[[int], float], rate: float, tmp_path: Path
) -> None:
    assert judged(tmp_path / "run", factor, rate) == []
