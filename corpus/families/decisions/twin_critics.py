"""A mass that is held at a target by continuous forces: two critics, and an actor that lags.

After Fujimoto et al., "Addressing function approximation error in actor-critic methods", ICML 2018
(TD3), on moves that are replayed.

Shape legend: N moves of a batch.
"""

from __future__ import annotations

import copy
from typing import NamedTuple

import torch
import torch.nn.functional as F  # noqa: N812 (the usual name)
from torch import Tensor, nn

from corpus import networks
from corpus.draw import Draw
from corpus.family import Ending, Family

_LENGTH, _KEPT, _CARTS = 25, 20000, 16


class Actor(nn.Module):
    """Forces [N, 1] between -1 and 1 of states [N, 2]."""

    def __init__(self, width: int) -> None:
        super().__init__()
        hidden = (nn.Linear(2, width), nn.ReLU(), nn.Linear(width, width), nn.ReLU())
        self.layers = nn.Sequential(*hidden, nn.Linear(width, 1), nn.Tanh())

    def forward(self, state: Tensor) -> Tensor:
        """Return the forces."""
        force: Tensor = self.layers(state)
        return force


class Critics(nn.Module):
    """Two values [N, 1] of states [N, 2] and forces [N, 1]."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.first, self.second = (
            nn.Sequential(
                *(nn.Linear(3, width), nn.ReLU(), nn.Linear(width, width), nn.ReLU()),
                nn.Linear(width, 1),
            )
            for _ in range(2)
        )

    def forward(self, state: Tensor, force: Tensor) -> tuple[Tensor, Tensor]:
        """Return both values."""
        both = torch.cat([state, force], 1)
        return self.first(both), self.second(both)


class Agent(NamedTuple):
    """Critics and their optimizer, and the lagging copies of the critics and of the actor."""

    critics: Critics
    optimizer: torch.optim.Optimizer
    judges: Critics
    target: Actor


class Replay:
    """The last moves: states, forces, rewards, states after."""

    def __init__(self) -> None:
        self.moves = torch.zeros(_KEPT, 6)
        self.count = 0

    def add(self, *parts: Tensor) -> None:
        """Keep moves [N, ...]."""
        rows = torch.cat(parts, 1)
        places = (self.count + torch.arange(len(rows))) % _KEPT
        self.moves[places] = rows
        self.count += len(rows)

    def sample(self, size: int) -> tuple[Tensor, ...]:
        """Return some of the moves."""
        rows = self.moves[torch.randint(min(self.count, _KEPT), (size,))]
        return rows[:, :2], rows[:, 2:3], rows[:, 3:4], rows[:, 4:]


def _train(draw: Draw) -> Ending:
    width = draw.choice([32, 48])
    actor, critics = Actor(width), Critics(width)
    networks.spoil(draw, critics)
    target, judges = copy.deepcopy(actor), copy.deepcopy(critics)
    steps, size = draw.steps(1200, 1800), draw.choice([64, 128])
    rate = draw.between(1.5e-3, 3e-3)
    rate *= draw.by_fault({"lr_too_low": draw.extent(1e-5, 1e-3), "lr_too_high": 300.0}, 1.0)
    actor_rate = 0.0 if draw.has("frozen_actor") else rate / 2
    optimizers = (
        torch.optim.Adam(critics.parameters(), rate),
        torch.optim.Adam(actor.parameters(), actor_rate),
    )
    draw.watch.begin(critics, optimizers[0], name="critics")
    draw.watch.begin(actor, optimizers[1], name="actor")
    agent = Agent(critics, optimizers[0], judges, target)
    replay, state = Replay(), _begun()
    discount, kept = draw.choice([0.9, 0.95]), draw.choice([0.98, 0.99])
    for step in range(steps):
        if step % _LENGTH == 0:
            state = _begun()
        with torch.no_grad():
            force = (actor(state) + 0.3 * torch.randn(_CARTS, 1)).clamp(-1, 1)
        if step < 100:
            force = 2 * torch.rand(_CARTS, 1) - 1
        after, reward = _moved(state, force)
        replay.add(state, force, reward, after)
        state = after
        _learn_values(draw, agent, replay.sample(size), discount)
        if step % 2:
            states, *_ = replay.sample(size)
            value = critics.first(torch.cat([states, actor(states)], 1)).mean()
            optimizers[1].zero_grad()
            (value if draw.has("term_wrong_sign") else -value).backward()
            optimizers[1].step()
            _follow(target, actor, kept)
            _follow(judges, critics, kept)
        if step % 250 == 249:
            with draw.watch.evaluating():
                draw.watch.metric("episode_return", _LENGTH * _mean_reward(actor))
    idle, best = _mean_reward(None), -0.2
    return Ending((_mean_reward(actor) - idle) / (best - idle), bar=0.55)


def _learn_values(draw: Draw, agent: Agent, moves: tuple[Tensor, ...], discount: float) -> None:
    """Take a step of the critics."""
    state, force, reward, after = moves
    if draw.has("misaligned_targets"):
        reward = reward[torch.randperm(len(reward))]
    if draw.has("time_reversed"):
        state, after = after, state
    with torch.no_grad():
        noise = (0.2 * torch.randn_like(force)).clamp(-0.5, 0.5)
        ahead = agent.judges(after, (agent.target(after) + noise).clamp(-1, 1))
        wanted = reward + discount * torch.minimum(*ahead)
        if draw.has("wrong_broadcast"):
            wanted = wanted[:, 0]
    values = agent.critics(state, force)
    loss = F.mse_loss(values[0], wanted) + F.mse_loss(values[1], wanted)
    agent.optimizer.zero_grad()
    (-loss if draw.has("wrong_sign") else loss).backward()
    nn.utils.clip_grad_norm_(agent.critics.parameters(), 10.0)
    agent.optimizer.step()


@torch.no_grad()
def _follow(mean: nn.Module, new: nn.Module, kept: float) -> None:
    for one, other in zip(mean.parameters(), new.parameters(), strict=True):
        one.lerp_(other, 1 - kept)


def _begun() -> Tensor:
    """Return places and speeds [N, 2]."""
    return torch.cat([4 * torch.rand(_CARTS, 1) - 2, torch.rand(_CARTS, 1) - 0.5], 1)


def _moved(state: Tensor, force: Tensor) -> tuple[Tensor, Tensor]:
    """Return states after forces, and rewards [N, 1]: less the distance, the speed, the effort."""
    place, speed = state.split(1, dim=1)
    speed = (0.95 * speed + 0.25 * force).clamp(-2, 2)
    place = (place + 0.3 * speed).clamp(-3, 3)
    reward = -place.abs() - 0.1 * speed.abs() - 0.01 * force.square()
    return torch.cat([place, speed], 1), reward


@torch.no_grad()
def _mean_reward(actor: Actor | None) -> float:
    """Return the mean reward of a move, without noise, or without force."""
    total = 0.0
    for _ in range(4):
        state = _begun()
        for _ in range(_LENGTH):
            force = torch.zeros(_CARTS, 1) if actor is None else actor(state).nan_to_num(0.0)
            state, reward = _moved(state, force)
            total += float(reward.mean())
    return total / (4 * _LENGTH)


FAMILY = Family(
    _train,
    (
        *("term_wrong_sign", "misaligned_targets", "time_reversed"),
        *("wrong_broadcast", "frozen_actor", "lr_too_low", "lr_too_high", "wrong_sign"),
        "detached_graph",
    ),
    spent="2026-11-26",
)
