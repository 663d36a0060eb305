"""Optimizers whose class overrides `step` and calls that of its base class."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from vinedresser.capture import Hook, SaveConfig, open_run

STEPS = 4


class Calling(torch.optim.SGD):
    """Torch hooks its `step` and that of its base class."""

    def step(self, closure: Any = None) -> Any:
        return super().step(closure)


def train(hook: Hook | None) -> tuple[list[float], list[Tensor]]:
    """Return the losses and the gradients of each step."""
    torch.manual_seed(0)
    model = nn.Linear(3, 1)
    # From now on, torch hooks the steps of the base class.
    torch.optim.SGD(model.parameters())
    optimizer = Calling(model.parameters(), lr=0.1)
    if hook is not None:
        hook.watch(model)
    losses, gradients = [], []
    for _ in range(STEPS):
        optimizer.zero_grad()
        loss = (model(torch.ones(2, 3)) - 3).square().mean()
        loss.backward()
        gradients.append(model.weight.grad.clone())  # type: ignore[union-attr]
        optimizer.step()
        losses.append(float(loss.detach()))
    return losses, gradients


def test_a_step_is_one_step(tmp_path: Path) -> None:
    with Hook(tmp_path / "run", collections={"gradients": SaveConfig(every=1)}) as hook:
        losses, gradients = train(hook)
    assert hook.problems == []
    assert losses == train(None)[0]
    run = open_run(tmp_path / "run")
    assert run.steps("train").tolist() == list(range(STEPS))
    captured = run.tensor("gradients/weight")
    for number, gradient in enumerate(gradients):
        assert captured.value(number).tolist() == gradient.tolist()
