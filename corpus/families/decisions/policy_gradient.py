"""REINFORCE in a tiny environment: the loss says nothing about the returns."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from corpus import networks
from corpus.data.corridor import Corridor, mean_return
from corpus.draw import Draw
from corpus.family import Ending, Family
from corpus.optimisation import Optimisation


def _train(draw: Draw) -> Ending:
    world = Corridor(draw.choice([3, 4]), draw.random.getrandbits(31))
    width = draw.choice([32, 64])
    model = nn.Sequential(
        nn.Linear(world.size**2, width), nn.Tanh(), nn.Linear(width, world.actions)
    )
    networks.spoil(draw, model)
    steps = draw.steps(150, 350)
    optimiser = Optimisation(
        draw, model, steps, scale=4.0, kinds=("adam", "rmsprop"), accumulates=False
    )
    draw.watch.begin(model, optimiser.optimizer)
    discount, bonus = draw.choice([0.9, 0.95]), draw.choice([0.0, 0.01])
    episodes, normalised = draw.choice([4, 8]), draw.chance(0.6)

    def compute() -> Tensor:
        states, actions, returns = [], [], []
        for _ in range(episodes):
            rewards = []
            state, ended = world.reset(), False
            while not ended:
                action = _drawn(model, state)
                states.append(state)
                actions.append(action)
                state, reward, ended = world.step(action)
                rewards.append(reward)
            returns += _discounted(rewards, discount)
        worth = torch.tensor(returns)
        if normalised:
            worth = (worth - worth.mean()) / (worth.std() + 1e-6)
        if draw.has("term_wrong_sign"):
            worth = -worth
        if draw.has("shuffled_labels"):
            worth = worth[torch.randperm(len(worth))]
        logs = model(torch.stack(states)).log_softmax(1)
        chosen = logs.gather(1, torch.tensor(actions)[:, None])[:, 0]
        loss: Tensor = bonus * (logs.exp() * logs).sum(1).mean() - (worth * chosen).mean()
        return loss

    for step in range(steps):
        optimiser.step(compute)
        if step % 50 == 49:
            with draw.watch.evaluating():
                draw.watch.metric("return", mean_return(world, lambda one: _drawn(model, one), 5))
    return Ending(mean_return(world, lambda one: _drawn(model, one), 60), bar=0.6, margin=0.2)


@torch.no_grad()
def _drawn(model: nn.Module, state: Tensor) -> int:
    """Return an action, drawn from the policy."""
    return int(torch.multinomial(model(state).softmax(0), 1))


def _discounted(rewards: list[float], discount: float) -> list[float]:
    """Return the discounted sums of the rewards from each step on."""
    sums = [0.0]
    for reward in reversed(rewards):
        sums.append(reward + discount * sums[-1])
    return sums[:0:-1]


FAMILY = Family(
    _train,
    (
        *("lr_too_high", "lr_too_low", "scheduler_to_zero", "wrong_parameters", "frozen_layers"),
        *("not_in_optimizer", "wrong_sign", "adam_epsilon", "zero_init", "large_init"),
        *("term_wrong_sign", "shuffled_labels", "weight_decay_too_high"),
    ),
    spent="2026-11-23",
)
