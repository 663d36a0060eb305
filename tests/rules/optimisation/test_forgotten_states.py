"""Recurrent layers whose state is not passed on, on real trainings."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

from tests.rules.inside_trainings import captured, found
from tests.rules.trainings import Data, digits
from vinedresser.rules.optimisation.untrained_parameters import UntrainedParameters


class Memory(nn.Module):
    """The class of a digit by its rows of pixels, one after the other, or each for itself."""

    def __init__(self, *, forgets: bool) -> None:
        super().__init__()
        self.memory = nn.GRU(8, 32, batch_first=True)
        self.head = nn.Linear(32, 10)
        self.forgets = forgets

    def forward(self, x: Tensor) -> Tensor:
        if x.ndim == 2:
            x = x[:, None, :8]
        states = self.memory(x.flatten(0, 1)[:, None] if self.forgets else x)[0]
        out: Tensor = self.head(states.reshape(len(x), x.shape[1], -1).mean(1))
        return out


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("rows", "forgets", "found_at"), [(True, True, [10]), (True, False, []), (False, False, [])]
)
def test_a_recurrent_layer_whose_state_is_not_passed_on(
    tmp_path: Path,
    rows: bool,
    forgets: bool,
    found_at: list[int],
) -> None:
    """Whatever the outcome; single steps are no sequences."""
    rule, data = UntrainedParameters(), digits()
    if rows:
        data = Data(data.x.view(-1, 8, 8), data.y, data.x_eval, data.y_eval)
    model = lambda: Memory(forgets=forgets)  # noqa: E731
    optimizer = lambda model: torch.optim.Adam(model.parameters(), 3e-3)  # noqa: E731
    run = captured(tmp_path, [rule], model, optimizer, data=data, steps=120)
    findings = [one for one in found(run, rule) if one.severity != "info"]
    assert [finding.step for finding in findings] == found_at
    assert all("begins with a state of zero" in finding.cause for finding in findings)
