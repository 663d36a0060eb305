"""Accumulating gradients and large inputs, as opposed to trainings that learn."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch import nn

from tests.rules.inside_trainings import captured, found, stack
from tests.rules.trainings import Data, adam, digits, sgd
from vinedresser.capture import Hook
from vinedresser.rules.base import capture_for
from vinedresser.rules.data.unnormalised_inputs import UnnormalisedInputs
from vinedresser.rules.optimisation.gradients_not_cleared import GradientsNotCleared
from vinedresser.store.finding import Finding
from vinedresser.store.reading.reader import open_run
from vinedresser.testing.runs import make_run, step_record


def scaled(factor: float) -> Data:
    """Return scaled digits."""
    data = digits()
    return Data(data.x * factor, data.y, data.x_eval * factor, data.y_eval)


def network() -> nn.Sequential:
    """Return a small network."""
    return stack((64, 32, 10), nn.Tanh)


def test_harmful_large_inputs_are_found(tmp_path: Path) -> None:
    rule = UnnormalisedInputs()
    run = captured(tmp_path, [rule], network, sgd(1e-4), data=scaled(255))
    (finding,) = found(run, rule)
    assert finding.fault == "unnormalised_inputs"
    assert finding.value > 50


def test_harmless_large_inputs_are_ignored(tmp_path: Path) -> None:
    rule = UnnormalisedInputs()
    run = captured(tmp_path, [rule], network, adam(1e-2), data=scaled(30))
    assert torch.isfinite(scaled(30).x).all()
    assert found(run, rule) == []


def accumulated(path: Path, *, clears: bool, batches: int) -> list[Finding]:
    """Return the findings in a training on digits.

    Args:
        path: parent directory of the run.
        clears: whether the gradients are cleared before each step.
        batches: batches per step whose gradients are added up.
    """
    torch.manual_seed(0)
    data, rule = digits(), GradientsNotCleared()
    model, loss_fn = stack((64, 64, 64, 10), nn.ReLU), nn.CrossEntropyLoss()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with Hook(path, collections=capture_for([rule]).collections, total_steps=400) as hook:
        hook.watch(model, loss=loss_fn, optimizer=optimizer)
        for _ in range(400):
            if clears:
                optimizer.zero_grad()
            for _ in range(batches):
                rows = torch.randint(len(data.x), (32,))
                (loss_fn(model(data.x[rows]), data.y[rows]) / batches).backward()
            optimizer.step()
    return found(open_run(path), rule)


@pytest.mark.thorough
def test_uncleared_gradients_are_found(tmp_path: Path) -> None:
    (finding,) = accumulated(tmp_path / "run", clears=False, batches=1)
    assert (finding.fault, finding.since, finding.step) == ("gradients_not_cleared", 5, 10)
    assert "zero_grad" in finding.remedy


@pytest.mark.thorough
def test_gradient_accumulation_is_ignored(tmp_path: Path) -> None:
    assert accumulated(tmp_path / "run", clears=True, batches=4) == []


def grown(path: Path, loss: float) -> list[Finding]:
    """Return the findings if the gradient grows 30-fold and the loss by a factor."""
    rule = GradientsNotCleared()
    made = [
        step_record(
            step,
            scalars={"losses/a": 1.0 + (loss - 1) * min(step / 100, 1.0)},
            reductions={"gradients/w": {"l2": 1 + 29 * min(step / 100, 1.0)}},
        )
        for step in range(600)
    ]
    return found(make_run(path / "run", made), rule)


def test_a_gradient_that_grows_alone_accumulates(tmp_path: Path) -> None:
    (finding,) = grown(tmp_path, 1.0)
    assert (finding.fault, finding.value) == ("gradients_not_cleared", 30.0)
    assert "zero_grad" in finding.remedy


def test_a_gradient_that_grows_with_the_loss_is_ignored(tmp_path: Path) -> None:
    assert grown(tmp_path, 20.0) == []
