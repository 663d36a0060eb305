"""Losses whose formulas are not known are not taken for others that sampled rows resemble."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch import nn
from torch.nn import functional

from vinedresser.capture.hook.hook import Hook
from vinedresser.rules.base import capture_for
from vinedresser.rules.judge import judge
from vinedresser.rules.losses.underfitting import Underfitting
from vinedresser.store.reading.reader import open_run


@pytest.mark.thorough
@pytest.mark.parametrize("by_function", [False, True])
def test_logarithms_of_rates_are_not_judged_as_the_counts(
    by_function: bool, tmp_path: Path
) -> None:
    torch.manual_seed(0)
    torch.set_num_threads(1)
    rule = Underfitting()
    inputs = torch.randn(1000, 5)
    rates = (inputs @ torch.tensor([0.5, -0.3, 0.2, 0.0, 0.1]) + 0.5).exp()
    counts = torch.poisson(rates)
    model = nn.Linear(5, 1)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
    with Hook(tmp_path / "run", collections=capture_for([rule]).collections) as hook:
        module = None if by_function else nn.PoissonNLLLoss()
        hook.watch(model, loss=module, optimizer=optimizer)
        loss = module or hook.loss(functional.poisson_nll_loss)
        for _ in range(300):
            rows = torch.randint(1000, (64,))
            optimizer.zero_grad()
            loss(model(inputs[rows])[:, 0], counts[rows]).backward()
            optimizer.step()
    # The model is as good as it can be.
    assert (model(inputs)[:, 0].exp() - rates).square().mean() < 0.1 * rates.var()
    assert [one for one in judge(open_run(tmp_path / "run"), [rule]) if one.statistic] == []
