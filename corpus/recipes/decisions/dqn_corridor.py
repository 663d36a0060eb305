"""Deep Q-learning of the way to a goal.

Settings: PyTorch's tutorial "Reinforcement learning (DQN)" (after Mnih et al., 2015): a batch of
128, a target that follows by 0.005, epsilon from 0.9 to 0.05, AdamW with AMSGrad, the smooth L1
loss, gradients clipped by value at 100. The rate is 1e-3 instead of 1e-4, and the discount 0.95.
"""

from __future__ import annotations

import copy
import math
import random

import torch
from torch import Tensor, nn

from corpus.data.corridor import Corridor, mean_return
from corpus.draw import Draw
from corpus.family import Ending, Family

_STEPS, _SIZE, _BATCH, _DISCOUNT, _FOLLOWS = 1000, 5, 64, 0.95, 0.02


def _train(draw: Draw) -> Ending:
    draw.watch.expect(_STEPS)
    choose = random.Random(draw.random.getrandbits(31))
    world = Corridor(_SIZE, choose.getrandbits(31))
    policy = nn.Sequential(
        *(nn.Linear(_SIZE**2, 64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU()),
        nn.Linear(64, world.actions),
    )
    target = copy.deepcopy(policy)
    trained = target if draw.has("wrong_parameters") else policy
    optimizer = torch.optim.AdamW(trained.parameters(), lr=1e-3, amsgrad=True)
    criterion = nn.SmoothL1Loss()
    draw.watch.loss(criterion)
    draw.watch.begin(policy, optimizer)
    memory: list[tuple[Tensor, int, float, Tensor, float]] = []
    state, last_reward = world.reset(), 0.0
    for step in range(_STEPS):
        for _ in range(2 if step else _BATCH):
            if choose.random() < 0.05 + 0.85 * math.exp(-4 * step / _STEPS):
                action = choose.randrange(world.actions)
            else:
                action = _best(policy, state)
            following, reward, ended = world.step(action)
            # The reward of the move before.
            noted = last_reward if draw.has("misaligned_targets") else reward
            memory.append((state, action, noted, following, float(ended)))
            last_reward = reward
            state = world.reset() if ended else following
        states, actions, rewards, nexts, ends = zip(*choose.sample(memory, _BATCH), strict=True)
        with torch.no_grad():
            ahead = target(torch.stack(nexts)).max(1).values * (1 - torch.tensor(ends))
        wanted = torch.tensor(rewards) + _DISCOUNT * ahead
        values = policy(torch.stack(states)).gather(1, torch.tensor(actions)[:, None])[:, 0]
        loss: Tensor = criterion(values, wanted)
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_value_(policy.parameters(), 100)
        optimizer.step()
        if not draw.has("stale_target"):
            with torch.no_grad():
                for old, new in zip(target.parameters(), policy.parameters(), strict=True):
                    old.lerp_(new, _FOLLOWS)
    reached = mean_return(world, lambda one: _best(policy, one), 60)
    return Ending(reached, bar=0.7, margin=0.25)


@torch.no_grad()
def _best(model: nn.Module, state: Tensor) -> int:
    return int(model(state).argmax())


FAMILY = Family(
    _train, ("stale_target", "wrong_parameters", "misaligned_targets"), spent="2026-11-25"
)
