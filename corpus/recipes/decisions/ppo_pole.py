"""Proximal policy optimisation on poles that are to be balanced.

Settings: CleanRL, `ppo.py` (after Schulman et al., 2017): 4 environments of 128 moves, a rate of
2.5e-4 that falls to zero, epsilon 1e-5, discount 0.99, lambda 0.95, 4 epochs of 4 minibatches, a
clipping of 0.2, entropy 0.01, value 0.5, gradients clipped at 0.5, two layers of 64 with tanh and
orthogonal weights.

Shape legend: T moves, N carts, B rows of a minibatch.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.distributions import Categorical

from corpus.data.cart_pole import CartPole, balanced
from corpus.draw import Draw
from corpus.family import Ending, Family

_UPDATES, _CARTS, _MOVES, _RATE, _MOST = 50, 4, 128, 2.5e-4, 200
_DISCOUNT, _LAMBDA, _CLIP = 0.99, 0.95, 0.2


def _linear(inputs: int, outputs: int, scale: float = 2**0.5) -> nn.Linear:
    layer = nn.Linear(inputs, outputs)
    nn.init.orthogonal_(layer.weight, scale)
    nn.init.zeros_(layer.bias)
    return layer


class Agent(nn.Module):
    """Scores of moves and values of states."""

    def __init__(self) -> None:
        super().__init__()
        self.critic = nn.Sequential(
            *(_linear(4, 64), nn.Tanh(), _linear(64, 64), nn.Tanh(), _linear(64, 1, 1.0))
        )
        self.actor = nn.Sequential(
            *(_linear(4, 64), nn.Tanh(), _linear(64, 64), nn.Tanh(), _linear(64, 2, 0.01))
        )

    def forward(self, states: Tensor) -> tuple[Tensor, Tensor]:
        """Return scores [..., 2] and values [...] of states [..., 4]."""
        return self.actor(states), self.critic(states)[..., 0]


def _train(draw: Draw) -> Ending:
    draw.watch.expect(_UPDATES * 16)
    world = CartPole(_CARTS, _MOST, draw.random.getrandbits(31))
    agent = Agent()
    optimizer = torch.optim.Adam(agent.parameters(), lr=_RATE, eps=1e-5)
    draw.watch.begin(agent, optimizer)
    state, rows = world.reset(), _MOVES * _CARTS
    for update in range(_UPDATES):
        # Moves are counted instead of updates.
        done = update * _MOVES if draw.has("scheduler_to_zero") else update
        optimizer.param_groups[0]["lr"] = max(0.0, 1 - done / _UPDATES) * _RATE
        state, *rolled = _roll_out(world, agent, state)
        states, moves, chances, advantages, returns = (one.flatten(0, 1) for one in rolled)
        for _ in range(4):
            order = torch.randperm(rows)
            for start in range(0, rows, rows // 4):
                batch = order[start : start + rows // 4]
                # The rows of the minibatch are other ones than those of the advantages.
                rated = batch.sort().values if draw.has("misaligned_targets") else batch
                scores, values = agent(states[batch])
                policy = Categorical(logits=scores)
                ratio = (policy.log_prob(moves[batch]) - chances[batch]).exp()
                gain = advantages[rated]
                gain = (gain - gain.mean()) / (gain.std() + 1e-8)
                clipped = ratio.clamp(1 - _CLIP, 1 + _CLIP)
                gained = torch.min(gain * ratio, gain * clipped).mean()
                policy_loss = gained if draw.has("term_wrong_sign") else -gained
                value_loss = 0.5 * (values - returns[batch]).square().mean()
                loss = policy_loss - 0.01 * policy.entropy().mean() + 0.5 * value_loss
                optimizer.zero_grad()
                loss.backward()
                nn.utils.clip_grad_norm_(agent.parameters(), 0.5)
                optimizer.step()
    with draw.watch.evaluating(), torch.no_grad():
        reached = balanced(CartPole(20, _MOST, 0), lambda one: agent(one)[0].argmax(1))
    return Ending((reached - 20) / (_MOST - 20), bar=0.4, margin=0.3)


@torch.no_grad()
def _roll_out(world: CartPole, agent: Agent, state: Tensor) -> tuple[Tensor, ...]:
    """Play; return the last state [N, 4] and, [T, N, ...] each, what the update is made of.

    That is: states, moves, their log-probabilities, advantages and returns.
    """
    played = []
    for _ in range(_MOVES):
        scores, value = agent(state)
        policy = Categorical(logits=scores)
        move = policy.sample()
        following, ended = world.step(move)
        played.append((state, move, policy.log_prob(move), value, ended.float()))
        state = following
    states, moves, chances, values, ends = (torch.stack(one) for one in zip(*played, strict=True))
    value, advantage, advantages = agent(state)[1], torch.zeros(_CARTS), []
    for place in reversed(range(_MOVES)):
        goes_on = 1 - ends[place]
        surprise = 1 + _DISCOUNT * value * goes_on - values[place]
        advantage = surprise + _DISCOUNT * _LAMBDA * goes_on * advantage
        advantages.append(advantage)
        value = values[place]
    gains = torch.stack(advantages[::-1])
    return state, states, moves, chances, gains, gains + values


FAMILY = Family(
    _train, ("scheduler_to_zero", "misaligned_targets", "term_wrong_sign"), spent="2026-11-25"
)
