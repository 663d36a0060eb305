"""A loss that stands still is judged by the number of examples that the model has seen."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch import nn

from tests.rules.data.trainings import found_in, network
from tests.rules.trainings import digits, sgd
from vinedresser.rules.losses.loss_not_decreasing import LossNotDecreasing


def undecided() -> nn.Module:
    """Return a network whose loss is that of guessing, with little noise."""
    model = network()()
    *_, last = model.children()
    assert isinstance(last, nn.Linear)
    with torch.no_grad():
        last.weight.mul_(0.01)
        last.bias.zero_()
    return model


@pytest.mark.thorough
@pytest.mark.parametrize(("batch", "live"), [(1, False), (32, True)])
def test_a_loss_is_not_judged_before_it_has_seen_examples(
    batch: int, *, live: bool, tmp_path: Path
) -> None:
    steps = 500
    (finding,) = found_in(
        tmp_path,
        [LossNotDecreasing()],
        digits(),
        undecided,
        optimizer=sgd(1e-7),
        steps=steps,
        batch=batch,
    )
    assert finding.fault == "learning_rate_too_low"
    # At the end of the run, no more examples can be waited for.
    assert (finding.step < steps - 1) == live
