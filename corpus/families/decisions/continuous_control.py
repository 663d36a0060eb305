"""Proximal policy optimisation of a Gaussian policy that drives a point to a target.

After Schulman et al., "Proximal policy optimization algorithms", 2017, with a clipped value loss.

Shape legend: N moves of a rollout.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.distributions import Normal

from corpus import networks
from corpus.draw import Draw
from corpus.family import Ending, Family
from corpus.optimisation import Optimisation

_LENGTH, _POINTS = 16, 32


class Moves(NamedTuple):
    """A rollout: states [N, 4], actions [N, 2], and the rest [N]."""

    state: Tensor
    action: Tensor
    log_prob: Tensor
    value: Tensor
    gain: Tensor
    wanted: Tensor


class Driver(nn.Module):
    """Mean of the action, value of a state, and a spread of its own."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.actor = nn.Sequential(nn.Linear(4, width), nn.Tanh(), nn.Linear(width, 2))
        self.critic = nn.Sequential(nn.Linear(4, width), nn.Tanh(), nn.Linear(width, 1))
        self.log_spread = nn.Parameter(torch.full((2,), -0.7))

    def policy(self, state: Tensor) -> Normal:
        """Return the distribution of the actions [N, 2] at states [N, 4]."""
        spread = self.log_spread.clamp(-4, 1).exp()
        mean = self.actor(state).nan_to_num(0.0)
        return Normal(mean, spread)

    def forward(self, state: Tensor) -> Tensor:
        """Return the values [N] of states [N, 4]."""
        value: Tensor = self.critic(state)[:, 0]
        return value


def _train(draw: Draw) -> Ending:
    model = Driver(draw.choice([32, 48]))
    networks.spoil(draw, model)
    epochs, parts = 4, 4
    rounds = draw.whole(25, 45)
    steps = rounds * epochs * parts
    draw.watch.expect(steps)
    optimiser = Optimisation(draw, model, steps, scale=1.5, kinds=("adam",), accumulates=False)
    draw.watch.begin(model, optimiser.optimizer)
    loss = _loss(draw, model)
    moves = _rollout(model)
    for number in range(rounds):
        if number and not draw.has("stale_buffer"):
            moves = _rollout(model)
        for _ in range(epochs):
            for rows in torch.randperm(len(moves.state)).chunk(parts):
                chosen = Moves(*(one[rows] for one in moves))
                optimiser.step(partial(loss, chosen))
        if number % 5 == 4:
            with draw.watch.evaluating():
                draw.watch.metric("episode_return", _mean_reward(model) * _LENGTH)
    idle, best = -0.95, -0.15
    return Ending((_mean_reward(model) - idle) / (best - idle), bar=0.5, margin=0.25)


def _loss(draw: Draw, model: Driver) -> Callable[[Moves], Tensor]:
    """Return the clipped objective, with the clipped loss of the values."""
    clip, bonus = draw.choice([0.2, 0.3]), draw.choice([0.0, 0.001])

    def loss_of(moves: Moves) -> Tensor:
        policy = model.policy(moves.state)
        log_prob = policy.log_prob(moves.action).sum(1)
        if draw.has("detached_log_probability"):
            log_prob = log_prob.detach()
        gain = (moves.gain - moves.gain.mean()) / (moves.gain.std() + 1e-6)
        if draw.has("term_wrong_sign"):
            gain = -gain
        if draw.has("shuffled_labels"):
            gain = gain[torch.randperm(len(gain))]
        ratio = (log_prob - moves.log_prob).clamp(-20, 20).exp()
        surrogate = torch.min(ratio * gain, ratio.clamp(1 - clip, 1 + clip) * gain).mean()
        value = model(moves.state)
        near = moves.value + (value - moves.value).clamp(-clip, clip)
        errors = (value - moves.wanted).square(), (near - moves.wanted).square()
        critic = torch.maximum(*errors).mean()
        total: Tensor = -surrogate + 0.5 * critic - bonus * policy.entropy().sum(1).mean()
        return total

    return loss_of


def _begun() -> Tensor:
    """Return states [points, 4]: places of points and of their targets."""
    return 2 * torch.rand(_POINTS, 4) - 1


def _moved(state: Tensor, action: Tensor) -> tuple[Tensor, Tensor]:
    """Return the states after actions, and the rewards: less the distance, and the effort."""
    place = (state[:, :2] + 0.3 * action.clamp(-1, 1)).clamp(-1.5, 1.5)
    reward = -(place - state[:, 2:]).norm(dim=1) - 0.01 * action.square().sum(1).clamp(max=10)
    return torch.cat([place, state[:, 2:]], 1), reward


@torch.no_grad()
def _rollout(model: Driver) -> Moves:
    """Return a rollout of all points, with generalised advantages."""
    state, kept = _begun(), []
    for _ in range(_LENGTH):
        policy = model.policy(state)
        action = policy.sample()
        after, reward = _moved(state, action)
        kept.append((state, action, policy.log_prob(action).sum(1), model(state), reward))
        state = after
    ahead, last = model(state), torch.zeros(_POINTS)
    gains = []
    for _, _, _, value, reward in reversed(kept):
        last = reward + 0.9 * ahead - value + 0.9 * 0.95 * last
        gains.append(last)
        ahead = value
    states, actions, logs, values, _ = (torch.stack(one) for one in zip(*kept, strict=True))
    gain = torch.stack(gains[::-1]).flatten()
    value = values.flatten()
    return Moves(
        states.flatten(0, 1), actions.flatten(0, 1), logs.flatten(), value, gain, gain + value
    )


@torch.no_grad()
def _mean_reward(model: Driver) -> float:
    """Return the mean reward of a move, without noise in the actions."""
    total = 0.0
    for _ in range(4):
        state = _begun()
        for _ in range(_LENGTH):
            state, reward = _moved(state, model.policy(state).mean)
            total += float(reward.mean())
    return total / (4 * _LENGTH)


FAMILY = Family(
    _train,
    (
        *("term_wrong_sign", "detached_log_probability", "shuffled_labels", "stale_buffer"),
        *("lr_too_low", "wrong_sign", "not_in_optimizer", "wrong_parameters"),
        *("saturation",),
    ),
    spent="2026-11-26",
)
