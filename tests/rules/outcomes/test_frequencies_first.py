"""A language model learns the frequencies of tokens first: a run may end too soon after that."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch import nn

from vinedresser.capture import Hook, open_run
from vinedresser.rules.base import capture_for
from vinedresser.rules.judge import judge
from vinedresser.rules.losses.constant_predictions import ConstantPredictions

KINDS, LENGTH, ROWS = 40, 16, 16


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("steps", "rate", "stopped"), [(165, 1e-2, False), (165, 3e-3, False), (400, 1e-2, True)]
)
def test_only_frequencies_are_learned(
    steps: int, rate: float, stopped: bool, tmp_path: Path
) -> None:
    torch.manual_seed(0)
    torch.set_num_threads(1)
    # One token is 30 % of the text.
    frequency = torch.ones(KINDS)
    frequency[0] = 17
    model = nn.Sequential(nn.Embedding(KINDS, 16), nn.Linear(16, KINDS))
    loss, optimizer = nn.CrossEntropyLoss(), torch.optim.Adam(model.parameters(), lr=rate)
    rules = [ConstantPredictions()]
    with Hook(tmp_path / "run", collections=capture_for(rules).collections) as hook:
        hook.watch(model, loss=loss, optimizer=optimizer)
        for _ in range(steps):
            inputs = torch.randint(KINDS, (ROWS, LENGTH))
            targets = torch.multinomial(frequency, ROWS * LENGTH, replacement=True)
            optimizer.zero_grad()
            loss(model(inputs).reshape(-1, KINDS), targets).backward()
            optimizer.step()
    findings = judge(open_run(tmp_path / "run"), rules)
    assert [one.severity for one in findings if one.statistic] == ["stop"] * stopped
