"""Rules about classes do not judge the tokens of a language model."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch import nn

from vinedresser.capture import Hook, open_run
from vinedresser.rules.base import capture_for
from vinedresser.rules.data.class_imbalance import ClassImbalance
from vinedresser.rules.data.corrupt_labels import CorruptLabels
from vinedresser.rules.judge import judge

KINDS, LENGTH, ROWS = 12, 16, 8


@pytest.mark.thorough
@pytest.mark.parametrize("tokens", [True, False])
def test_rare_tokens_that_are_learned_late(tokens: bool, tmp_path: Path) -> None:
    torch.manual_seed(0)
    torch.set_num_threads(1)
    frequency = 1 / torch.arange(1.0, KINDS + 1) ** 2
    first: nn.Module = nn.Embedding(KINDS, 16) if tokens else nn.Linear(KINDS, 16)
    model = nn.Sequential(first, nn.ReLU(), nn.Linear(16, KINDS))
    loss, optimizer = nn.CrossEntropyLoss(), torch.optim.Adam(model.parameters(), lr=3e-3)
    rules = [ClassImbalance(), CorruptLabels()]
    with Hook(tmp_path / "run", collections=capture_for(rules).collections) as hook:
        hook.watch(model, loss=loss, optimizer=optimizer)
        for _ in range(400):
            text = torch.multinomial(frequency, ROWS * (LENGTH + 1), replacement=True)
            text = text.reshape(ROWS, LENGTH + 1)
            inputs, targets = text[:, :-1], text[:, 1:].reshape(-1)
            if not tokens:
                inputs = nn.functional.one_hot(inputs.reshape(-1), KINDS).float()
            optimizer.zero_grad()
            loss(model(inputs).reshape(-1, KINDS), targets).backward()
            optimizer.step()
    found = {one.rule for one in judge(open_run(tmp_path / "run"), rules) if one.statistic}
    # The same rows, but not as text.
    assert found == (set() if tokens else {"class_imbalance"})
