"""Deep Q-learning with a replay memory and a target network, after PyTorch's tutorial."""

from __future__ import annotations

import copy
import math
import random
from collections import deque

import numpy as np
import torch
from torch import Tensor, nn

from benchmarks.public.recipes.cart import Carts
from benchmarks.public.recipes.journal import Journal, steps

BATCH, HIDDEN, GAMMA, TAU, RATE = 128, 768, 0.99, 0.005, 1e-4
MOST, LEAST, DECAY = 0.9, 0.05, 1000


def main() -> None:
    torch.manual_seed(0)
    chance = random.Random(0)
    cart = Carts(1, 0)
    policy = nn.Sequential(
        nn.Linear(4, HIDDEN), nn.ReLU(), nn.Linear(HIDDEN, HIDDEN), nn.ReLU(), nn.Linear(HIDDEN, 2)
    )
    target = copy.deepcopy(policy)
    optimizer = torch.optim.AdamW(policy.parameters(), lr=RATE, amsgrad=True)
    criterion = nn.SmoothL1Loss()
    memory: deque[tuple[Tensor, int, float, Tensor, float]] = deque(maxlen=10_000)
    total, journal = steps(400), Journal()
    for moment in range(total + BATCH - 1):
        state = torch.from_numpy(cart.state[0].copy())
        if chance.random() > LEAST + (MOST - LEAST) * math.exp(-moment / DECAY):
            with torch.no_grad():
                action = int(policy(state[None]).argmax())
        else:
            action = chance.randrange(2)
        after, reward, done = cart.step(np.array([action]))
        memory.append((state, action, float(reward[0]), torch.from_numpy(after[0]), float(done[0])))
        if len(memory) < BATCH:
            continue
        states, actions, rewards, nexts, dones = zip(*chance.sample(memory, BATCH), strict=True)
        value = policy(torch.stack(states)).gather(1, torch.tensor(actions)[:, None])[:, 0]
        with torch.no_grad():
            best = target(torch.stack(nexts)).max(1).values * (1 - torch.tensor(dones))
        loss = criterion(value, torch.tensor(rewards) + GAMMA * best)
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_value_(policy.parameters(), 100)
        optimizer.step()
        weights, learned = target.state_dict(), policy.state_dict()
        for name in weights:
            weights[name] = TAU * learned[name] + (1 - TAU) * weights[name]
        target.load_state_dict(weights)
        journal.step(loss=loss.item())
    journal.finish(policy.state_dict().values())


if __name__ == "__main__":
    main()
