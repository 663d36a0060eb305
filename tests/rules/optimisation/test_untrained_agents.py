"""The rule about untrained parameters, on policies with a value and a spread of their own."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from torch import nn

from tests.rules.inside_trainings import found
from vinedresser.capture.hook.hook import Hook
from vinedresser.rules.base import capture_for
from vinedresser.rules.optimisation.untrained_parameters import UntrainedParameters
from vinedresser.store.finding import Finding
from vinedresser.store.reading.reader import open_run


class Agent(nn.Module):
    """A policy with a spread of its own, and the value of a state."""

    def __init__(self) -> None:
        super().__init__()
        self.actor = nn.Sequential(nn.Linear(4, 16), nn.Tanh(), nn.Linear(16, 2))
        self.critic = nn.Sequential(nn.Linear(4, 16), nn.Tanh(), nn.Linear(16, 1))
        self.log_spread = nn.Parameter(torch.zeros(2))


def of_agent(
    path: Path,
    trained: Callable[[Agent], list[nn.Parameter]],
    *,
    name: str | None = "agent",
    detached: bool = False,
) -> list[Finding]:
    """Return the findings in a policy gradient whose rewards depend on the action.

    Args:
        path: parent directory of the run.
        trained: returns the parameters that the optimizer gets.
        name: name of the model.
        detached: cut the graph after the mean of the policy.
    """
    torch.manual_seed(0)
    rule, agent = UntrainedParameters(), Agent()
    optimizer = torch.optim.Adam(trained(agent), lr=1e-3)
    with Hook(path / "run", collections=capture_for([rule]).collections) as hook:
        hook.watch(agent, optimizer=optimizer, name=name)
        mean_of = hook.loss(torch.mean)
        for _ in range(130):
            state = torch.randn(64, 4)
            mean = agent.actor(state).detach() if detached else agent.actor(state)
            policy = torch.distributions.Normal(mean, agent.log_spread.exp())
            action = policy.sample()
            reward = -(action - state[:, :2]).square().sum(1)
            value = agent.critic(state)[:, 0]
            gain = (reward - value).detach()
            errors = (value - reward).square() - policy.log_prob(action).sum(1) * gain
            agent.zero_grad()
            mean_of(errors).backward()
            optimizer.step()
    return found(open_run(path / "run"), rule)


def test_a_policy_that_is_cut_off_beside_a_spread_of_its_own(tmp_path: Path) -> None:
    (finding,) = of_agent(tmp_path, lambda agent: list(agent.parameters()), detached=True)
    assert (finding.severity, finding.evidence["trouble"]) == ("warning", "cut_off")
    actor = ["weights/agent.actor.0.weight", "weights/agent.actor.2.weight"]
    assert finding.evidence["names"] == actor


def test_an_optimizer_of_a_spread_alone_is_a_warning_at_the_end(tmp_path: Path) -> None:
    first, then = of_agent(tmp_path, lambda agent: [agent.log_spread], name=None)
    assert (first.severity, then.severity) == ("info", "warning")
    assert then.evidence["trouble"] == "left_out"
    assert len(then.evidence["names"]) == 4


def test_a_whole_policy_that_is_trained_is_ignored(tmp_path: Path) -> None:
    assert of_agent(tmp_path, lambda agent: list(agent.parameters())) == []


@pytest.mark.thorough
@pytest.mark.parametrize("by_hand", [False, True])
def test_a_policy_beside_its_critic_may_be_updated_by_hand_from_time_to_time(
    tmp_path: Path,
    by_hand: bool,
) -> None:
    """As TRPO does once in 160 steps of the critic; a policy that is never updated is found."""
    torch.manual_seed(0)
    rule = UntrainedParameters()
    agent = nn.ModuleDict(
        {
            "body": nn.Sequential(nn.Linear(4, 16), nn.Tanh()),
            "critic": nn.Sequential(nn.Linear(4, 16), nn.Tanh(), nn.Linear(16, 1)),
            "head": nn.Linear(16, 2),
        }
    )
    actor = [*agent["body"].parameters(), *agent["head"].parameters()]
    optimizer = torch.optim.Adam(agent.parameters(), lr=1e-3)
    errors = nn.MSELoss()
    with Hook(tmp_path / "run", collections=capture_for([rule]).collections) as hook:
        hook.watch(agent, loss=errors, optimizer=optimizer)
        for step in range(500):
            states = torch.randn(64, 4)
            if by_hand and step % 160 == 0:
                wanted = agent["head"](agent["body"](states)).square().mean()
                with torch.no_grad():
                    for one, change in zip(actor, torch.autograd.grad(wanted, actor), strict=True):
                        one.sub_(0.1 * change)
            optimizer.zero_grad()
            errors(agent["critic"](states)[:, 0], states.square().sum(1)).backward()
            optimizer.step()
    findings = [one for one in found(open_run(tmp_path / "run"), rule) if one.severity != "info"]
    assert [(finding.step, finding.evidence["names"]) for finding in findings] == (
        [] if by_hand else [(280, ["weights/body.0.weight", "weights/head.weight"])]
    )
