"""Losses that are maximised, told from steps that are too long; policies that become worse."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch import nn
from torch.nn import functional

from tests.rules.trainings import batches, digits
from vinedresser.capture.hook.hook import Hook
from vinedresser.rules.base import Rule, capture_for
from vinedresser.rules.judge import judge
from vinedresser.rules.losses.loss_not_decreasing import LossNotDecreasing
from vinedresser.rules.losses.loss_output_mismatch import LossOutputMismatch
from vinedresser.rules.losses.underfitting import Underfitting
from vinedresser.rules.optimisation.learning_rate_too_high import LearningRateTooHigh
from vinedresser.store.finding import Finding
from vinedresser.store.reading.reader import open_run


def findings(
    folder: Path,
    *rules: Rule,
    rate: float = 2e-3,
    adam: bool = True,
    maximize: bool = False,
    sign: float = 1.0,
) -> list[Finding]:
    """Train on digits for 300 steps, and judge the run.

    Args:
        folder: directory of the run.
        rules: the rules.
        rate: learning rate.
        adam: whether the optimizer is Adam; SGD otherwise.
        maximize: whether the optimizer maximises.
        sign: factor of the loss in the script, which the hook does not see.
    """
    torch.manual_seed(0)
    torch.set_num_threads(1)
    data = digits()
    model = nn.Sequential(nn.Linear(64, 32), nn.ReLU(), nn.Linear(32, 10))
    kind = torch.optim.Adam if adam else torch.optim.SGD
    optimizer = kind(model.parameters(), lr=rate, maximize=maximize)
    rows = batches(len(data.x), 32)
    with Hook(folder, collections=capture_for(rules).collections, total_steps=300) as hook:
        hook.watch(model, optimizer=optimizer)
        loss = hook.loss(functional.cross_entropy)
        for _ in range(300):
            chosen = next(rows)
            optimizer.zero_grad()
            (sign * loss(model(data.x[chosen]), data.y[chosen])).backward()
            optimizer.step()
    return [one for one in judge(open_run(folder), list(rules)) if one.statistic]


@pytest.mark.thorough
@pytest.mark.parametrize(("rate", "adam"), [(2e-3, True), (6e-3, True), (0.02, False)])
def test_a_loss_that_climbs_its_gradient_is_named_ascent(
    rate: float, adam: bool, tmp_path: Path
) -> None:
    rules = (LearningRateTooHigh(), LossNotDecreasing())
    found = findings(tmp_path / "run", *rules, rate=rate, adam=adam, sign=-1.0)
    assert [one.rule for one in found] == ["learning_rate_too_high", "loss_not_decreasing"]
    assert {one.fault for one in found} == {"loss_output_mismatch"}
    assert all("gradient ascent" in one.cause and not one.correction for one in found)


@pytest.mark.thorough
def test_steps_that_are_too_long_are_no_ascent(tmp_path: Path) -> None:
    found = findings(tmp_path / "run", LearningRateTooHigh(), rate=1.0)
    assert {one.fault for one in found} == {"learning_rate_too_high"}


@pytest.mark.thorough
def test_an_optimizer_that_maximises_a_known_loss_is_found_at_once(tmp_path: Path) -> None:
    (finding,) = findings(tmp_path / "run", LossOutputMismatch(), maximize=True)
    assert finding.step <= 30
    assert "maximize=True" in finding.cause


@pytest.mark.thorough
def test_the_maximum_of_a_negative_loss_is_no_ascent(tmp_path: Path) -> None:
    rules = (LossOutputMismatch(), LearningRateTooHigh(), LossNotDecreasing())
    assert findings(tmp_path / "run", *rules, maximize=True, sign=-1.0) == []
    assert findings(tmp_path / "usual", *rules) == []


@pytest.mark.thorough
@pytest.mark.parametrize("sign", [1.0, -1.0])
def test_a_policy_that_becomes_worse_is_found_at_the_end(sign: float, tmp_path: Path) -> None:
    rule = Underfitting()
    torch.manual_seed(0)
    policy = nn.Sequential(nn.Linear(3, 16), nn.Tanh(), nn.Linear(16, 3))
    optimizer = torch.optim.Adam(policy.parameters(), lr=1e-2)
    folder = tmp_path / "run"
    with Hook(folder, collections=capture_for([rule]).collections) as hook:
        hook.watch(policy, optimizer=optimizer)
        for step in range(200):
            state = torch.randn(32, 3)
            actions = torch.distributions.Categorical(logits=policy(state))
            action = actions.sample()
            reward = (action == state.argmax(1)).float()
            optimizer.zero_grad()
            (-sign * (actions.log_prob(action) * (reward - 1 / 3)).mean()).backward()
            optimizer.step()
            if step % 5 == 0:
                hook.metric("reward", reward.mean().item())
                hook.metric("curiosity_reward", -float(step))
    found = [one for one in judge(open_run(folder), [rule]) if one.statistic]
    assert [one.tensor for one in found] == ([] if sign > 0 else ["metrics/reward"])
    assert all("wrong sign" in one.cause for one in found)


@pytest.mark.thorough
@pytest.mark.parametrize("sign", [1.0, -1.0])
def test_a_policy_that_stands_where_it_has_fallen_at_once_is_found(
    sign: float, tmp_path: Path
) -> None:
    # A corridor of six fields: the goal is on the right, each step costs a little.
    rule = Underfitting()
    torch.manual_seed(0)
    policy = nn.Sequential(nn.Linear(6, 32), nn.Tanh(), nn.Linear(32, 2))
    optimizer = torch.optim.Adam(policy.parameters(), lr=1e-2)
    with Hook(tmp_path / "run", collections=capture_for([rule]).collections) as hook:
        hook.watch(policy, optimizer=optimizer)
        for _ in range(200):
            place, logs = 0, list[torch.Tensor]()
            rewards = list[float]()
            while place < 5 and len(rewards) < 40:
                moves = torch.distributions.Categorical(logits=policy(torch.eye(6)[place]))
                move = moves.sample()
                logs.append(moves.log_prob(move))
                place = place + 1 if move else max(place - 1, 0)
                rewards.append(1.0 if place == 5 else -0.05)
            left = torch.tensor(rewards).flip(0).cumsum(0).flip(0)
            optimizer.zero_grad()
            (-sign * (torch.stack(logs) * (left - left.mean())).mean()).backward()
            optimizer.step()
            hook.metric("episode_return", sum(rewards))
    found = [one for one in judge(open_run(tmp_path / "run"), [rule]) if one.statistic]
    assert [one.tensor for one in found] == ([] if sign > 0 else ["metrics/episode_return"])
