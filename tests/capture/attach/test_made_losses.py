"""Loss modules that a loop makes in each step, in an unchanged script."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.capture.attach.runs import attached, script
from vinedresser.store.reading.reader import open_run

TRAINING = """
    import torch
    from torch import nn
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 3))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for step in range(6):
        x, y = torch.randn(16, 4), torch.randint(3, (16,))
        optimizer.zero_grad()
        criterion = nn.CrossEntropyLoss()
        loss = criterion(model(x), y)
        loss.backward()
        optimizer.step()
        print(loss.item())
"""


@pytest.mark.thorough
def test_a_loss_has_one_name_although_its_module_is_made_in_each_step(tmp_path: Path) -> None:
    script(tmp_path, TRAINING)
    options = ("--collection", "losses:every=1", "--collection", "labels:every=1")
    result = attached("train.py", cwd=tmp_path, options=options)
    assert result.returncode == 0, result.stderr
    run = open_run(tmp_path / "runs" / "run")
    (name,) = run.scalars("losses")
    assert name == "losses/CrossEntropyLoss"
    recorded = run.scalars("losses")[name].values
    assert recorded == pytest.approx([float(line) for line in result.stdout.splitlines()])
    assert run.tensor_names("labels") == ["labels/CrossEntropyLoss"]
    assert run.tensor("labels/CrossEntropyLoss").steps().tolist() == list(range(6))


CUSTOM = """
    import torch
    from torch import nn
    class Focal(nn.Module):
        def forward(self, x, y):
            lost = nn.functional.binary_cross_entropy_with_logits(x, y, reduction="none")
            return ((1 - torch.exp(-lost)) ** 2 * lost).mean()
    torch.manual_seed(0)
    model, criterion = nn.Linear(4, 1), Focal()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for step in range(6):
        x = torch.randn(16, 4)
        optimizer.zero_grad()
        criterion(model(x), (x[:, :1] > 0).float()).backward()
        optimizer.step()
"""


@pytest.mark.thorough
def test_a_custom_loss_module_says_which_function_it_applies(tmp_path: Path) -> None:
    script(tmp_path, CUSTOM)
    result = attached("train.py", cwd=tmp_path, options=("--collection", "labels:every=1"))
    assert result.returncode == 0, result.stderr
    (setup,) = open_run(tmp_path / "runs" / "run").info.losses.values()
    assert (setup["type"], setup["custom"]) == ("Focal", True)
    assert setup["function"] == "binary_cross_entropy_with_logits"
