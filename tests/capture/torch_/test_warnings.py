"""A script's warnings are shown as often, and at the same places, as without capture."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.capture.attach.runs import both, script, split_stderr

SCRIPT = """
    import sys, warnings
    import torch
    from torch import nn
    from torch.nn import functional as F

    def of_caller(x):
        warnings.warn("of the caller", stacklevel=2)
        return x

    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.layer = nn.Linear(4, 4)

        def forward(self, x):
            h = F.softmax(self.layer(x))
            torch.range(0, 3)
            torch.ones(2, 3, 4).T
            torch.add(torch.ones(2), 1, out=torch.empty(3))
            torch.meshgrid(torch.arange(2), torch.arange(2))
            return torch.sigmoid(of_caller(h)).mean(1, keepdim=True)

    torch.manual_seed(0)
    model = Model()
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    for step in range(6):

        def closure():
            optimizer.zero_grad()
            warnings.warn("of the closure", stacklevel=2)
            loss = F.mse_loss(model(torch.ones(8, 4)), torch.ones(8))
            loss.backward()
            return loss

        if step % 2:
            optimizer.step(closure)
        else:
            closure()
            optimizer.step()
    try:
        model(torch.ones(8, 3))
    except RuntimeError:
        pass
    F.softmax(model.layer(torch.ones(8, 4)), 7)
"""


@pytest.mark.slow
@pytest.mark.parametrize("filters", ["default", "once", "always"])
def test_warnings_are_those_of_the_script(tmp_path: Path, filters: str) -> None:
    script(tmp_path, SCRIPT)
    options = ("--collection", "activations:every=2", "--collection", "inputs:every=3")
    done = both("train.py", cwd=tmp_path, options=options, PYTHONWARNINGS=filters)

    assert "Implicit dimension choice for softmax" in done.alone.stderr
    assert split_stderr(done.attached.stderr)[0] == done.alone.stderr
    run = done.open()
    assert run.problems == []
    assert run.tensor("inputs/Model").steps("train").tolist() == [0, 3]


@pytest.mark.thorough
def test_a_warning_that_is_an_error_has_the_traceback_of_the_script(tmp_path: Path) -> None:
    script(tmp_path, SCRIPT)
    options = ("--collection", "activations:every=1")
    done = both("train.py", cwd=tmp_path, options=options, PYTHONWARNINGS="error:Implicit")

    assert "UserWarning: Implicit dimension choice for softmax" in done.alone.stderr
    assert split_stderr(done.attached.stderr)[0] == done.alone.stderr
