"""Poles that are balanced by deep Q-learning: a memory, a second network, and fewer random moves.

After Mnih et al., "Human-level control through deep reinforcement learning", Nature 2015, and
van Hasselt, Guez and Silver, "Deep reinforcement learning with double Q-learning", AAAI 2016.

Shape legend: B moves of a batch.
"""

from __future__ import annotations

import copy

import torch
from torch import Tensor, nn

from corpus.data.cart_pole import CartPole, balanced
from corpus.draw import Draw
from corpus.epochs import learning_rate, optimizer_of, trained
from corpus.family import Ending, Family
from corpus.networks import spoil

_CARTS, _MOST, _MEMORY, _WARM_UP = 8, 150, 4000, 30
# What a state is divided by: metres, metres a second, radians, radians a second.
_SCALE = torch.tensor([1.0, 1.0, 0.1, 1.0])


class Memory:
    """The last moves: states, actions, rewards, next states, and whether the episode ended."""

    def __init__(self) -> None:
        self._columns: list[Tensor] = []

    def add(self, *columns: Tensor) -> None:
        """Keep moves, each column [N, ...]."""
        if not self._columns:
            self._columns = list(columns)
        pairs = zip(self._columns, columns, strict=True)
        self._columns = [torch.cat([old, new])[-_MEMORY:] for old, new in pairs]

    def sample(self, size: int) -> list[Tensor]:
        """Return random moves."""
        rows = torch.randint(len(self._columns[0]), (size,))
        return [one[rows] for one in self._columns]


def _train(draw: Draw) -> Ending:
    steps = draw.steps(1200, 1500)
    width = draw.choice([48, 64])
    head = nn.Linear(width, 2)
    policy = nn.Sequential(
        *(nn.Linear(4, width), nn.ReLU(), nn.Linear(width, width), nn.ReLU(), head)
    )
    spoil(draw, policy)
    target = copy.deepcopy(policy)
    rate = learning_rate(draw, 1e-3, 2e-3)
    optimizer = optimizer_of(draw, "adamw", trained(draw, policy, head), rate)
    criterion = nn.SmoothL1Loss()
    draw.watch.loss(criterion)
    draw.watch.begin(policy, optimizer)
    world, memory = CartPole(_CARTS, _MOST, draw.random.getrandbits(30)), Memory()
    state = _seen(draw, world.state)
    for step in range(_WARM_UP + steps):
        random = torch.rand(_CARTS) < max(0.05, 1 - step / (0.4 * steps))
        with torch.no_grad():
            move = torch.where(random, torch.randint(2, (_CARTS,)), policy(state).argmax(1))
        after, ended = world.step(move)
        after = _seen(draw, after)
        reward = torch.where(ended, -1.0, 0.1)
        memory.add(state, move, reward, after, ended)
        state = after
        if step < _WARM_UP:
            continue
        loss = _loss(draw, criterion, policy, target, memory.sample(64))
        optimizer.zero_grad()
        (-loss if draw.has("wrong_sign") else loss).backward()
        nn.utils.clip_grad_value_(policy.parameters(), 10.0)
        optimizer.step()
        if step % 25 == 0:
            target.load_state_dict(policy.state_dict())
    with draw.watch.evaluating(), torch.no_grad():
        trial = CartPole(40, _MOST, 7)
        kept = balanced(trial, lambda one: policy(_seen(draw, one)).argmax(1))
        draw.watch.metric("mean_episode_length", kept)
    # Random moves keep a pole up for 22 moves.
    return Ending((kept - 22) / (_MOST - 22), bar=0.4, margin=0.25)


def _loss(
    draw: Draw, criterion: nn.Module, policy: nn.Module, target: nn.Module, moves: list[Tensor]
) -> Tensor:
    """Return the loss of moves [B, ...]."""
    state, move, reward, after, ended = moves
    value = policy(state).gather(1, move[:, None])
    with torch.no_grad():
        best = policy(after).argmax(1, keepdim=True)
        later = target(after).gather(1, best)[:, 0]
    wanted = reward + 0.97 * later * (~ended)
    if not draw.has("wrong_broadcast"):
        value = value[:, 0]
    loss: Tensor = criterion(value, wanted)
    return loss


def _seen(draw: Draw, state: Tensor) -> Tensor:
    """Return states [N, 4] as the network gets them."""
    if draw.has("unnormalised_inputs"):
        # Micrometres and microradians.
        return 1e6 * state
    if draw.has("constant_inputs"):
        return torch.zeros_like(state)
    return state / _SCALE


FAMILY = Family(
    _train,
    (
        *("constant_inputs", "wrong_broadcast", "wrong_sign", "wrong_parameters"),
        *("unnormalised_inputs", "dead_relu", "zero_init", "lr_too_low", "lr_too_high"),
    ),
)
