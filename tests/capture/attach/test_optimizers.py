"""Optimizers that a library makes for each parameter, in the first iteration of a training."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.capture.attach.runs import both, script

SCRIPT = """
    import torch
    from torch import nn

    torch.manual_seed(0)
    x, y = torch.randn(32, 4), torch.randn(32, 1)
    model = nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 1))
    optimizers = {}
    for _ in range(5):
        model.zero_grad()
        loss = nn.functional.mse_loss(model(x), y)
        loss.backward()
        for parameter in model.parameters():
            if parameter not in optimizers:
                optimizers[parameter] = torch.optim.Adam([parameter], lr=0.01)
            optimizers[parameter].step()
        print(loss.item())
    """


@pytest.mark.slow
def test_they_are_one_training(tmp_path: Path) -> None:
    path = script(tmp_path, SCRIPT)
    done = both(path.name, cwd=tmp_path, options=("--collection", "gradients:every=1"))
    assert done.attached.stdout == done.alone.stdout
    assert "another training" not in done.attached.stderr
    run = done.open()
    printed = [float(line) for line in done.alone.stdout.split()]
    [values] = [column.values.tolist() for column in run.scalars("losses").values()]
    # The first optimizers end their step before the others are made.
    assert len(values) in (4, 5)
    assert values[-4:] == pytest.approx(printed[-4:])
    for name in ("0.weight", "0.bias", "2.weight", "2.bias"):
        assert f"gradients/{name}" in run.tensor_names()
