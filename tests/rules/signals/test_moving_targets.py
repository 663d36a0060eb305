"""A loss that rises with its targets is no loss of what was learned."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

from vinedresser.capture import Hook, SaveConfig, open_run
from vinedresser.rules.base import capture_for
from vinedresser.rules.judge import judge
from vinedresser.rules.losses.loss_not_decreasing import LossNotDecreasing
from vinedresser.rules.optimisation.learning_rate_too_high import LearningRateTooHigh
from vinedresser.store.finding import Finding


def found(
    path: Path, *, growing: bool, captured: bool = True, growth: float = 1.0, rare: bool = False
) -> list[Finding]:
    """Return the findings in a training whose loss rises about threefold.

    Args:
        path: parent directory of the run.
        growing: the targets grow, with the noise that is in them; otherwise the model is spoilt.
        captured: the targets are captured.
        growth: how far they grow.
        rare: the targets are captured seven times in the first 300 steps, and then never again.
    """
    torch.manual_seed(0)
    torch.set_num_threads(1)
    model, loss = nn.Linear(8, 1), nn.MSELoss()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    rules = [LearningRateTooHigh(), LossNotDecreasing()]
    capture = capture_for(rules) if captured else capture_for([LossNotDecreasing()])
    kept = {
        name: one
        for name, one in capture.collections.items()
        if captured or name not in ("labels", "predictions")
    }
    if rare:
        few = SaveConfig(every=45, stop=300, rows=64)
        kept |= {name: replace(kept[name], save=(few,)) for name in ("labels", "predictions")}
    weights = torch.randn(8, 1)
    with Hook(path / "run", collections=kept, total_steps=800) as hook:
        hook.watch(model, loss=loss, optimizer=optimizer)
        for step in range(800):
            size = 1 + growth * min(step / 100 / growth, 1) if growing else 1.0
            x = torch.randn(32, 8)
            targets: Tensor = size * (0.3 * x @ weights + torch.randn(32, 1))
            optimizer.zero_grad()
            loss(model(x), targets).backward()
            optimizer.step()
            if not growing and step >= 60:
                # As by another program that writes into the weights.
                model.weight.data = weights.T * 0.3 + 0.9
    findings = judge(open_run(path / "run"), rules)
    return [finding for finding in findings if finding.statistic]


@pytest.mark.thorough
@pytest.mark.parametrize("growth", [1.0, 5.0])
def test_a_loss_that_rises_with_its_targets(growth: float, tmp_path: Path) -> None:
    # The loss is proportional to their square: fourfold, and 36-fold.
    assert found(tmp_path, growing=True, growth=growth) == []


@pytest.mark.thorough
def test_a_loss_that_rises_with_targets_that_are_rarely_captured(tmp_path: Path) -> None:
    # A hook that keeps to its budget looks less often.
    assert found(tmp_path, growing=True, growth=2.0, rare=True) == []


@pytest.mark.thorough
def test_targets_that_are_rarely_captured_rule_nothing_out(tmp_path: Path) -> None:
    findings = found(tmp_path, growing=False, rare=True)
    assert {finding.severity for finding in findings} == {"warning"}


@pytest.mark.thorough
@pytest.mark.parametrize("captured", [True, False])
def test_a_loss_that_rises_without_its_targets(captured: bool, tmp_path: Path) -> None:
    findings = found(tmp_path, growing=False, captured=captured)
    assert {finding.rule for finding in findings} == {
        "learning_rate_too_high",
        "loss_not_decreasing",
    }
    # Targets that nobody knows may have grown.
    severities = {finding.severity for finding in findings if "rose" in finding.seen}
    assert severities == {"stop" if captured else "warning"}


@pytest.mark.thorough
@pytest.mark.parametrize("growing", [True, False])
def test_the_loss_of_an_actor_rises_with_the_targets_of_its_critic(
    growing: bool, tmp_path: Path
) -> None:
    torch.manual_seed(0)
    critic, actor, loss = nn.Linear(9, 1), nn.Linear(8, 1), nn.MSELoss()
    critic_optimizer = torch.optim.SGD(critic.parameters(), lr=0.02)
    actor_optimizer = torch.optim.SGD(actor.parameters(), lr=1e-4)
    capture = capture_for([LearningRateTooHigh(), LossNotDecreasing()])
    with Hook(tmp_path / "run", collections=capture.collections) as hook:
        hook.watch(critic, loss=loss, optimizer=critic_optimizer, name="critic")
        hook.watch(actor, optimizer=actor_optimizer, name="actor")
        for step in range(600):
            size = 1 + (min(step / 60, 4) if growing else 0)
            x, chosen = torch.randn(32, 8), torch.randn(32, 1)
            # Costs: an actor that cannot lower them has a loss that rises with them.
            critic_optimizer.zero_grad()
            loss(critic(torch.cat([x, chosen], 1)), size * (torch.randn(32, 1) - 1)).backward()
            critic_optimizer.step()
            if not growing and step >= 60:
                # The actor's loss is on both sides of zero: it counts once it rose tenfold.
                critic.bias.data = torch.tensor([-80.0])
            actor_optimizer.zero_grad()
            value = -critic(torch.cat([x, actor(x)], 1)).mean()
            hook.save("losses/actor", value)
            value.backward()
            actor_optimizer.step()
    findings = judge(open_run(tmp_path / "run"), [LossNotDecreasing()])
    assert [finding.severity for finding in findings if finding.statistic] == (
        [] if growing else ["stop"]
    )
