"""A loss on a plateau before learning: nothing is said while it may leave it."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch import nn

from vinedresser.capture import Hook, open_run
from vinedresser.rules.base import capture_for
from vinedresser.rules.judge import judge
from vinedresser.rules.registry import RULES
from vinedresser.store.finding import Finding


def xor(directory: Path, *, learns: bool) -> tuple[float, list[Finding]]:
    """Learn XOR by a 2-4-1 network as tutorials do, in a run whose length is not told.

    Returns:
        The last loss, and the findings.
    """
    torch.manual_seed(0 if learns else 1)
    torch.set_num_threads(1)
    rows = torch.tensor([[0.0, 0.0], [0.0, 1.0], [1.0, 0.0], [1.0, 1.0]])
    y = torch.tensor([[0.0], [1.0], [1.0], [0.0]])
    model = nn.Sequential(nn.Linear(2, 4), nn.Sigmoid(), nn.Linear(4, 1), nn.Sigmoid())
    optimizer, loss = torch.optim.SGD(model.parameters(), lr=0.5), nn.MSELoss()
    rules = [kind() for kind in RULES.values()]
    with Hook(directory, collections=capture_for(rules).collections) as hook:
        hook.watch(model, loss=loss, optimizer=optimizer)
        for _ in range(1800 if learns else 600):
            optimizer.zero_grad()
            value = loss(model(rows), y)
            value.backward()
            optimizer.step()
    return value.item(), judge(open_run(directory), rules)


@pytest.mark.thorough
def test_a_plateau_that_is_left_is_no_fault(tmp_path: Path) -> None:
    last, findings = xor(tmp_path / "run", learns=True)
    assert last < 0.06
    assert [finding.rule for finding in findings if finding.severity != "info"] == []


@pytest.mark.thorough
def test_weights_that_hardly_move_on_a_plateau_are_no_fault_while_they_may_leave_it(
    tmp_path: Path,
) -> None:
    torch.manual_seed(7)
    torch.set_num_threads(1)
    layers: list[nn.Module] = []
    for width in (8, 16, 16, 16, 16, 16):
        layers += [nn.Linear(width, 16), nn.ReLU()]
    model = nn.Sequential(*layers, nn.Linear(16, 8))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.02, momentum=0.9)
    loss = nn.BCEWithLogitsLoss()
    rules = [kind() for kind in RULES.values()]
    losses = []
    with Hook(tmp_path / "run", collections=capture_for(rules).collections) as hook:
        hook.watch(model, loss=loss, optimizer=optimizer)
        for _ in range(2400):
            bits = torch.randint(0, 2, (32, 8)).float()
            optimizer.zero_grad()
            value = loss(model(bits), bits)
            value.backward()
            optimizer.step()
            losses.append(value.item())
    assert min(losses[:1000]) > 0.65
    assert losses[-1] < 0.63
    findings = judge(open_run(tmp_path / "run"), rules)
    assert [finding.rule for finding in findings if finding.severity != "info"] == []


@pytest.mark.thorough
def test_the_end_of_a_run_on_a_plateau_is_reported(tmp_path: Path) -> None:
    last, findings = xor(tmp_path / "run", learns=False)
    assert last > 0.2
    alarms = [finding for finding in findings if finding.severity == "stop"]
    assert "loss_not_decreasing" in {alarm.rule for alarm in alarms}
    assert {alarm.step for alarm in alarms} == {599}
