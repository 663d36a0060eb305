"""Policy gradients on a pole that is to be balanced.

Settings: pytorch/examples, `reinforcement_learning/reinforce.py` (after Williams, 1992): 128 hidden
units, dropout of 0.6, Adam with a rate of 1e-2, a discount of 0.99, standardised returns, one step
per episode.

Shape legend: T moves of an episode.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.distributions import Categorical

from corpus.data.cart_pole import CartPole, balanced
from corpus.draw import Draw
from corpus.family import Ending, Family
from corpus.loop import evaluation

_EPISODES, _MOST = 200, 150


class Policy(nn.Module):
    """Scores of both moves."""

    def __init__(self) -> None:
        super().__init__()
        self.affine1, self.affine2 = nn.Linear(4, 128), nn.Linear(128, 2)
        self.dropout = nn.Dropout(0.6)

    def forward(self, state: Tensor) -> Tensor:
        """Return scores [..., 2] of states [..., 4]."""
        scores: Tensor = self.affine2(torch.relu(self.dropout(self.affine1(state))))
        return scores


def _train(draw: Draw) -> Ending:
    draw.watch.expect(_EPISODES)
    world = CartPole(1, _MOST, draw.random.getrandbits(31))
    policy = Policy()
    rate = 0.3 if draw.has("lr_too_high") else 1e-2
    optimizer = torch.optim.Adam(policy.parameters(), lr=rate)
    draw.watch.begin(policy, optimizer)
    for _ in range(_EPISODES):
        policy.train()
        chosen, rewards = _episode(world, policy)
        if draw.has("returns_reversed"):
            # Of the past instead of the future.
            rewards = rewards.flip(0)
            returns = _discounted(rewards).flip(0)
        else:
            returns = _discounted(rewards)
        returns = (returns - returns.mean()) / (returns.std(correction=0) + 1e-7)
        optimizer.zero_grad()
        sign = 1 if draw.has("wrong_sign") else -1
        (sign * chosen * returns).sum().backward()
        optimizer.step()
        draw.watch.metric("episode_length", float(len(rewards)))
    with evaluation(draw, policy):
        reached = balanced(CartPole(20, _MOST, 0), lambda state: policy(state).argmax(1))
    return Ending((reached - 20) / (_MOST - 20), bar=0.4, margin=0.3)


def _episode(world: CartPole, policy: Policy) -> tuple[Tensor, Tensor]:
    """Return the log-probabilities and the rewards of the moves of an episode, both [T]."""
    state, chosen, ended = world.reset(), [], False
    while not ended:
        moves = Categorical(logits=policy(state))
        move = moves.sample()
        chosen.append(moves.log_prob(move))
        state, over = world.step(move)
        ended = bool(over)
    return torch.cat(chosen), torch.ones(len(chosen))


def _discounted(rewards: Tensor) -> Tensor:
    """Return the discounted sums of what follows, [T]."""
    total, sums = torch.tensor(0.0), []
    for reward in rewards.flip(0):
        total = reward + 0.99 * total
        sums.append(total)
    return torch.stack(sums).flip(0)


FAMILY = Family(_train, ("wrong_sign", "returns_reversed", "lr_too_high"), spent="2026-11-25")
