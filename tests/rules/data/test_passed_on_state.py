"""State that a loop passes on, and settings, are not taken for data that is not normalised."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

from tests.rules.trainings import batches, digits
from vinedresser.capture import Hook, open_run
from vinedresser.rules.base import capture_for
from vinedresser.rules.data.unnormalised_inputs import UnnormalisedInputs
from vinedresser.rules.judge import judge


class Carrying(nn.Module):
    """A network with a state beside its input, which saturates when the state is large."""

    def __init__(self) -> None:
        super().__init__()
        self.hidden, self.last = nn.Linear(72, 32), nn.Linear(32, 10)

    def forward(self, rows: Tensor, state: Tensor) -> Tensor:
        wide = torch.cat([rows, state.expand(len(rows), 8)], 1)
        result: Tensor = self.last(self.hidden(wide).tanh())
        return result


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("start", "growth", "shape", "found"),
    [
        (0.0, 4.0, (1, 8), False),
        (40.0, 4.0, (1, 8), False),
        (400.0, 0.0, (), False),
        (400.0, 0.0, (1, 8), True),
    ],
    ids=["from zero", "from a large one", "number", "constant"],
)
def test_inputs_that_grow_and_single_numbers_are_no_data(
    start: float, growth: float, shape: tuple[int, ...], found: bool, tmp_path: Path
) -> None:
    torch.manual_seed(0)
    torch.set_num_threads(1)
    data, model, loss = digits(), Carrying(), nn.CrossEntropyLoss()
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-4)
    rule = UnnormalisedInputs()
    collections = capture_for([rule]).collections
    with Hook(tmp_path / "run", collections=collections) as hook:
        hook.watch(model, loss=loss, optimizer=optimizer)
        rows = batches(len(data.x), 64)
        state = torch.full(shape, start)
        for _ in range(150):
            chosen = next(rows)
            optimizer.zero_grad()
            loss(model(data.x[chosen], state), data.y[chosen]).backward()
            optimizer.step()
            state = state + growth
    findings = judge(open_run(tmp_path / "run"), [rule])
    assert [finding.tensor for finding in findings] == (["inputs/Carrying[1]"] if found else [])
