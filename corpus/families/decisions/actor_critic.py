"""An advantage actor-critic that steers a mass to the origin; the loss says nothing of returns.

After Mnih et al., "Asynchronous methods for deep reinforcement learning", ICML 2016.

Shape legend: N parallel environments, T steps of a rollout.
"""

from __future__ import annotations

import copy

import torch
import torch.nn.functional as F  # noqa: N812 (the usual name)
from torch import Tensor, nn

from corpus import networks
from corpus.draw import Draw
from corpus.family import Ending, Family
from corpus.optimisation import Optimisation

_ROLLOUT = 5


class Steering:
    """Masses on a line, pushed to the left, not at all, or to the right.

    Args:
        count: number of parallel environments.
        power: acceleration of a push.
    """

    def __init__(self, count: int, power: float) -> None:
        self.power = power
        self.age = torch.randint(20, (count,))
        self.state = _begun(count)

    def step(self, action: Tensor) -> tuple[Tensor, Tensor]:
        """Return the rewards [N] of actions int64 [N], and which episodes have ended, bool [N]."""
        place, speed = self.state.unbind(1)
        speed = (0.9 * speed + self.power * (action - 1)).clamp(-1, 1)
        self.state = torch.stack([(place + 0.5 * speed).clamp(-2, 2), speed], 1)
        self.age += 1
        ended = self.age >= 20
        reward = 1 - self.state[:, 0].abs()
        fresh = _begun(len(ended))
        self.state = torch.where(ended[:, None], fresh, self.state)
        self.age[ended] = 0
        return reward, ended


class Agent(nn.Module):
    """Scores of the actions, and values, of states [N, 2]."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.actor, self.critic = (
            nn.Sequential(nn.Linear(2, width), nn.Tanh(), nn.Linear(width, width), nn.Tanh(), last)
            for last in (nn.Linear(width, 3), nn.Linear(width, 1))
        )

    def forward(self, state: Tensor) -> tuple[Tensor, Tensor]:
        """Return logits [N, 3] and values [N]."""
        return self.actor(state), self.critic(state)[:, 0]


def _train(draw: Draw) -> Ending:
    power, count = draw.choice([0.15, 0.2, 0.3]), draw.choice([16, 32])
    model = Agent(draw.choice([32, 64]))
    networks.spoil(draw, model)
    steps, discount = draw.steps(200, 400), draw.choice([0.9, 0.95])
    optimiser = Optimisation(
        draw, model, steps, scale=2.0, kinds=("adam", "rmsprop"), accumulates=False
    )
    draw.watch.begin(model, optimiser.optimizer)
    world, bonus = Steering(count, power), draw.choice([0.003, 0.01])
    if draw.has("entropy_sign"):
        bonus = -draw.extent(3, 30)
    target, every = copy.deepcopy(model), draw.choice([5, 10])

    def compute() -> Tensor:
        logs, entropies, values, rewards, ends = [], [], [], [], []
        for _ in range(_ROLLOUT):
            scores, value = model(world.state)
            policy = scores.log_softmax(1)
            action = torch.multinomial(policy.detach().exp(), 1)[:, 0]
            reward, ended = world.step(action)
            logs.append(policy.gather(1, action[:, None])[:, 0])
            entropies.append(-(policy.exp() * policy).sum(1))
            values.append(value)
            rewards.append(-reward if draw.has("term_wrong_sign") else reward)
            ends.append(ended)
        with torch.no_grad():
            ahead = target(world.state)[1]
        wanted = _returns(rewards, ends, ahead, discount)
        log_prob, value = torch.stack(logs), torch.stack(values)
        if draw.has("detached_log_probability"):
            log_prob = log_prob.detach()
        worth = (wanted - value).detach()
        if draw.has("shuffled_labels"):
            worth = worth.flatten()[torch.randperm(worth.numel())].view_as(worth)
        entropy = torch.stack(entropies).mean()
        policy_loss: Tensor = -(log_prob * worth).mean() - bonus * entropy
        return policy_loss + 0.5 * F.mse_loss(value, wanted)

    for step in range(steps):
        optimiser.step(compute)
        if step % every == 0:
            target.load_state_dict(model.state_dict())
        if step % 50 == 49:
            with draw.watch.evaluating():
                draw.watch.metric("return", _mean_reward(model, power, 1))
    idle, best = -0.1, 0.8
    return Ending((_mean_reward(model, power, 4) - idle) / (best - idle), bar=0.5, margin=0.25)


def _begun(count: int) -> Tensor:
    """Return fresh states [N, 2]."""
    return torch.stack([4 * torch.rand(count) - 2, torch.zeros(count)], 1)


def _returns(rewards: list[Tensor], ends: list[Tensor], ahead: Tensor, discount: float) -> Tensor:
    """Return the discounted sums [T, N] of rewards, up to the end of an episode."""
    sums = []
    for reward, ended in zip(reversed(rewards), reversed(ends), strict=True):
        ahead = reward + discount * ahead * (~ended).float()
        sums.append(ahead)
    return torch.stack(sums[::-1])


@torch.no_grad()
def _mean_reward(model: nn.Module, power: float, episodes: int) -> float:
    """Return the mean reward of a step of the drawn actions, over whole episodes."""
    world, total = Steering(64, power), 0.0
    world.age[:] = 0
    for _ in range(20 * episodes):
        policy = model(world.state)[0].softmax(1)
        total += float(world.step(torch.multinomial(policy, 1)[:, 0])[0].mean())
    return total / (20 * episodes)


FAMILY = Family(
    _train,
    (
        *("detached_log_probability", "term_wrong_sign", "shuffled_labels", "entropy_sign"),
        *("not_in_optimizer", "lr_too_high", "lr_too_low", "scheduler_to_zero", "wrong_parameters"),
        *("frozen_layers", "wrong_sign", "adam_epsilon", "large_init", "saturation"),
    ),
    spent="2026-11-25",
)
