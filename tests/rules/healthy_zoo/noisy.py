"""Healthy trainings with uninformative losses: rewards, plateaus, changing tasks."""

from __future__ import annotations

from collections import deque
from pathlib import Path

import numpy as np
import torch
from torch import Tensor, nn

from tests.rules.healthy_zoo.loop import accuracy, seeded, watched
from tests.rules.healthy_zoo.models import perceptron

__all__ = ["NOISY"]

_SIDE = 5
_MOVES = torch.tensor([[0, 1], [0, -1], [1, 0], [-1, 0]])


def _seen(places: Tensor) -> Tensor:
    """Return one-hot positions of walkers on a board of 25 squares."""
    return nn.functional.one_hot(_SIDE * places[:, 0] + places[:, 1], _SIDE * _SIDE).float()


def _move(places: Tensor, actions: Tensor) -> tuple[Tensor, Tensor]:
    """Return the squares after a move, and whether each walker reached the corner (4, 4)."""
    after = (places + _MOVES[actions]).clamp(0, _SIDE - 1)
    return after, (after == _SIDE - 1).all(1)


def _policy_gradient(store: Path, seed: int) -> None:
    """Walkers search a corner (REINFORCE): the loss stays near zero, the reward rises."""
    seeded(seed)
    policy = perceptron(25, 32, 4, activation=nn.Tanh)
    optimizer = torch.optim.Adam(policy.parameters(), lr=1e-2)
    rewards = []
    with watched(store, steps=400, lr=1e-2) as hook:
        hook.watch(policy, optimizer=optimizer)
        for _ in range(400):
            places, alive = torch.randint(0, _SIDE, (32, 2)), torch.ones(32)
            surprise, reward = torch.zeros(32), torch.zeros(32)
            for _ in range(10):
                choice = torch.distributions.Categorical(logits=policy(_seen(places)))
                actions = choice.sample()
                surprise = surprise - alive * choice.log_prob(actions)
                places, there = _move(places, actions)
                reward = reward - 0.1 * alive
                alive = alive * ~there
            advantage = (reward - reward.mean()) / (reward.std() + 1e-6)
            loss = (surprise * advantage).mean()
            optimizer.zero_grad()
            loss.backward()
            hook.save("losses/policy", loss.detach())
            hook.metric("reward", reward.mean())
            optimizer.step()
            rewards.append(reward.mean().item())
    # The direct way has -0.4 on average; walkers that never arrive have -1.
    last = sum(rewards[-50:]) / 50
    assert last >= -0.55, f"reward {last:.2f}"
    assert last >= sum(rewards[:20]) / 20 + 0.2


def _survival(store: Path, seed: int) -> None:
    """A rod that falls over unless it is pushed back (REINFORCE, with the returns as they are).

    Each moment is a loss of its own, so that the sum rises as the rod is kept up for longer.
    """
    seeded(seed)
    policy = perceptron(2, 32, 2, activation=nn.Tanh)
    optimizer = torch.optim.Adam(policy.parameters(), lr=1e-2)
    lengths = []
    with watched(store, lr=1e-2, discount=0.98) as hook:
        hook.watch(policy, optimizer=optimizer)
        for _ in range(300):
            angle, speed = (0.2 * torch.rand(2) - 0.1).tolist()
            chosen: list[Tensor] = []
            while abs(angle) < 0.5 and len(chosen) < 100:
                probabilities = policy(torch.tensor([angle, speed])).softmax(0)
                action = int(torch.multinomial(probabilities, 1))
                chosen.append(probabilities[action])
                speed += 0.1 * angle + (0.05 if action else -0.05)
                angle += 0.5 * speed
            optimizer.zero_grad()
            value = 0.0
            for probability in reversed(chosen):
                value = 1 + 0.98 * value
                (-torch.log(probability) * value).backward()
            optimizer.step()
            lengths.append(len(chosen))
    first, last = sum(lengths[:30]) / 30, sum(lengths[-30:]) / 30
    assert last >= 2 * first, f"kept up for {first:.0f} moments, then for {last:.0f}"


def _q_learning(store: Path, seed: int) -> None:
    """Learns from its own forecasts: the loss starts near zero, rises, and falls late.

    A second network, from time to time a copy of the first, makes the targets (Mnih et al., 2015).
    """
    seeded(seed)
    model, target = perceptron(25, 64, 4), perceptron(25, 64, 4)
    target.load_state_dict(model.state_dict())
    loss_fn, optimizer = nn.SmoothL1Loss(), torch.optim.Adam(model.parameters(), lr=3e-3)
    with watched(store, lr=3e-3, discount=0.9) as hook:
        hook.watch(model, loss=loss_fn, optimizer=optimizer)
        for step in range(1000):
            if step % 50 == 0:
                target.load_state_dict(model.state_dict())
                hook.metric("success_rate", _success(target))
            places, actions = torch.randint(0, _SIDE, (64, 2)), torch.randint(0, 4, (64,))
            after, there = _move(places, actions)
            with torch.no_grad():
                value = there + 0.9 * ~there * target(_seen(after)).max(1).values
            optimizer.zero_grad()
            loss_fn(model(_seen(places))[torch.arange(64), actions], value).backward()
            optimizer.step()
    assert _success(model) >= 0.95


@torch.no_grad()
def _success(model: nn.Module) -> float:
    """Return the share of walkers that reach the corner with the best actions."""
    places = torch.cartesian_prod(torch.arange(_SIDE), torch.arange(_SIDE))
    found = torch.zeros(len(places), dtype=torch.bool)
    for _ in range(8):
        places, there = _move(places, model(_seen(places)).argmax(1))
        found |= there
    return found.float().mean().item()


def _balance(store: Path, seed: int) -> None:
    """Q-learning from its own estimates: the loss rises a hundredfold while episodes get longer.

    A point at x drifts away from 0, is pushed left or right, and earns 1 per step within |x| < 1.
    """
    seeded(seed)
    chance = np.random.default_rng(seed)
    model = perceptron(1, 64, 2)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    memory: deque[tuple[float, int, float, float]] = deque(maxlen=2000)
    x, lengths = 0.0, [0]
    with watched(store, lr=1e-3) as hook:
        hook.watch(model, optimizer=optimizer)
        for step in range(1500):
            if chance.random() < max(0.05, 0.99 ** (step / 4)):
                action = int(chance.integers(2))
            else:
                with torch.no_grad():
                    action = int(model(torch.tensor([[x]])).argmax())
            after = 1.1 * x + 0.15 * (2 * action - 1) + chance.normal(0, 0.02)
            over = abs(after) >= 1 or lengths[-1] >= 100
            memory.append((x, action, after, float(over)))
            x, lengths = (0.0, [*lengths, 0]) if over else (after, [*lengths[:-1], lengths[-1] + 1])
            if len(memory) < 32:
                continue
            rows = [memory[place] for place in chance.integers(len(memory), size=32)]
            here, actions, there, ends = torch.tensor(rows).float().T
            best = model(there[:, None]).max(1).values.detach()
            value = model(here[:, None]).gather(1, actions.long()[:, None]).squeeze(1)
            loss = (value - (1 + 0.99 * best * (1 - ends))).pow(2).mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
    last = sum(lengths[-6:-1]) / 5
    assert last >= 60, f"{last:.0f} steps per episode"


class _Boltzmann(nn.Module):
    """A restricted Boltzmann machine; returns the free energies [N] of visible units [N, 16]."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(0.05 * torch.randn(24, 16))
        self.visible = nn.Parameter(torch.zeros(16))
        self.hidden = nn.Parameter(torch.zeros(24))

    def forward(self, units: Tensor) -> Tensor:
        hidden = nn.functional.linear(units, self.weight, self.hidden)
        return -units @ self.visible - nn.functional.softplus(hidden).sum(1)

    @torch.no_grad()
    def move(self, units: Tensor) -> Tensor:
        """Draw hidden units given the visible ones, and visible ones given these."""
        hidden = nn.functional.linear(units, self.weight, self.hidden).sigmoid().bernoulli()
        return (hidden @ self.weight + self.visible).sigmoid().bernoulli()


def _contrastive_divergence(store: Path, seed: int) -> None:
    """A Boltzmann machine of bars: the loss swings about zero while the energies are learned."""
    seeded(seed)
    model = _Boltzmann()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    squares = torch.zeros(8, 4, 4)
    for place in range(4):
        squares[place, place], squares[4 + place, :, place] = 1, 1
    bars = squares.flatten(1)
    with watched(store, steps=1500, lr=0.1) as hook:
        hook.watch(model, optimizer=optimizer)
        for _ in range(1500):
            data = bars[torch.randint(0, 8, (16,))]
            samples = model.move(model.move(data))
            loss = model(data).mean() - model(samples).mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
    with torch.no_grad():
        gap = model((torch.rand(256, 16) < 0.25).float()).mean() - model(bars).mean()
    assert gap > 5, f"other pictures have only {gap:.1f} more energy"


def _parity(store: Path, seed: int) -> None:
    """The class depends on the product of three of 20 signs.

    For hundreds of steps nothing is to be seen but chance (Barak et al., 2022); then it is found.
    """
    seeded(seed)
    model, loss_fn = perceptron(20, 128, 2), nn.CrossEntropyLoss()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.2)

    def draw(rows: int) -> tuple[Tensor, Tensor]:
        signs = 2.0 * torch.randint(0, 2, (rows, 20)) - 1
        return signs, (signs[:, 2:5].prod(1) > 0).long()

    x_held, y_held = draw(1000)
    middle = 0.0
    with watched(store, steps=1200, lr=0.2) as hook:
        hook.watch(model, loss=loss_fn, optimizer=optimizer)
        for step in range(1200):
            if step % 50 == 0:
                model.eval()
                with torch.no_grad():
                    outputs = model(x_held)
                    loss_fn(outputs, y_held)
                    reached = accuracy(outputs, y_held)
                hook.metric("accuracy", reached)
                middle = reached if step == 300 else middle
                model.train()
            x, y = draw(64)
            optimizer.zero_grad()
            loss_fn(model(x), y).backward()
            optimizer.step()
    with torch.no_grad():
        reached = accuracy(model(x_held), y_held)
    assert reached >= 0.95, f"accuracy {reached:.3f}"
    assert middle <= 0.75, f"accuracy {middle:.3f} after 300 steps: no plateau"


def _curriculum(store: Path, seed: int) -> None:
    """Sums of more and more numbers: the loss jumps whenever the task gets harder."""
    seeded(seed)
    model, loss_fn = perceptron(8, 64, 64, 1), nn.MSELoss()
    optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)

    def draw(rows: int, count: int) -> tuple[Tensor, Tensor]:
        x = torch.randn(rows, 8)
        x[:, count:] = 0
        return x, (x[:, 0::2] * x[:, 1::2]).sum(1, keepdim=True)

    x_held, y_held = draw(1000, 8)
    with watched(store, steps=1600, lr=3e-3) as hook:
        hook.watch(model, loss=loss_fn, optimizer=optimizer)
        for step in range(1600):
            if step % 100 == 0:
                model.eval()
                with torch.no_grad():
                    loss_fn(model(x_held), y_held)
                model.train()
            x, y = draw(64, 2 * (1 + step // 400))
            optimizer.zero_grad()
            loss_fn(model(x), y).backward()
            optimizer.step()
    with torch.no_grad():
        error = nn.functional.mse_loss(model(x_held), y_held) / y_held.var()
    assert error <= 0.4, f"{error:.2f} of the variance is left"


NOISY = {
    "policy_gradient": _policy_gradient,
    "survival": _survival,
    "q_learning": _q_learning,
    "balance": _balance,
    "contrastive_divergence": _contrastive_divergence,
    "parity": _parity,
    "curriculum": _curriculum,
}
