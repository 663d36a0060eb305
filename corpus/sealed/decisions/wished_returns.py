"""Poles balanced for as long as one wishes: what to do is learned from how long it went well.

After Srivastava et al., "Training agents using upside-down reinforcement learning", 2019.

Shape legend: N moves.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset

from corpus.data.cart_pole import CartPole, balanced
from corpus.data.held_out import held_out
from corpus.draw import Draw
from corpus.epochs import learning_rate, optimizer_of, plan, trained
from corpus.family import Ending, Family
from corpus.loop import accuracy
from corpus.networks import spoil

_CARTS, _MOST, _SEEN = 60, 150, 4000
_SCALE = torch.tensor([1.0, 1.0, 0.1, 1.0])


def _train(draw: Draw) -> Ending:
    states, left, moves = _played(draw)
    x = torch.cat([states / _SCALE, left[:, None] / 50], 1)
    rows = held_out(
        *(draw, x, moves, _SEEN),
        # The column of the moves was empty.
        training={"single_label": (x, torch.zeros_like(moves))},
    )
    width = draw.choice([32, 48])
    head = nn.Linear(width, 2)
    behaviour = nn.Sequential(
        *(nn.Linear(5, width), nn.Tanh(), nn.Linear(width, width), nn.Tanh(), head)
    )
    spoil(draw, behaviour)
    length = plan(draw, _SEEN, [64, 80], (8, 10))
    rate = learning_rate(draw, 2e-3, 4e-3)
    optimizer = optimizer_of(draw, "adam", trained(draw, behaviour, head), rate)
    criterion = nn.CrossEntropyLoss()
    draw.watch.loss(criterion)
    draw.watch.begin(behaviour, optimizer)
    loader = DataLoader(TensorDataset(rows.x, rows.y), length.size, shuffle=True, drop_last=True)
    for _ in range(length.epochs):
        behaviour.train()
        for seen, done in loader:
            optimizer.zero_grad()
            loss = criterion(behaviour(seen), done)
            (-loss if draw.has("wrong_sign") else loss).backward()
            if not draw.has("missing_step"):
                optimizer.step()
        behaviour.eval()
        with draw.watch.evaluating(), torch.no_grad():
            scores = behaviour(rows.x_val)
            draw.watch.metric("val_loss", float(criterion(scores, rows.y_val)))
            draw.watch.metric("val_acc", accuracy(scores, rows.y_val))

    def act(state: Tensor) -> Tensor:
        wished = torch.full((len(state), 1), 2.5)
        seen = torch.cat([state / _SCALE, wished], 1)
        moved: Tensor = behaviour(seen).argmax(1)
        return moved

    with draw.watch.evaluating(), torch.no_grad():
        kept = balanced(CartPole(40, _MOST, 7), act)
        draw.watch.metric("episode_length", kept)
    # Random moves keep a pole up for 22 moves.
    return Ending((kept - 22) / (_MOST - 22), bar=0.45, margin=0.25)


def _played(draw: Draw) -> tuple[Tensor, Tensor, Tensor]:
    """Return states [N, 4], how many moves were left [N], and moves int64 [N] in random order."""
    world = CartPole(_CARTS, _MOST, draw.random.getrandbits(30))
    # Some players push to the side to which the pole falls, others as they like.
    skill = torch.rand(_CARTS)
    state, kept = world.state, []
    for _ in range(160):
        better = (state[:, 2] + 0.3 * state[:, 3] > 0).long()
        move = torch.where(torch.rand(_CARTS) < skill, better, torch.randint(2, (_CARTS,)))
        after, ended = world.step(move)
        kept.append((state, move, ended))
        state = after
    states, moves, ends = (torch.stack(one) for one in zip(*kept, strict=True))
    left = torch.zeros(len(kept), _CARTS)
    following = torch.zeros(_CARTS)
    for step in reversed(range(len(kept))):
        following = torch.where(ends[step], 0.0, following + 1)
        left[step] = following
    order = torch.randperm(len(kept) * _CARTS)[: _SEEN + 1000]
    return states.flatten(0, 1)[order], left.flatten()[order], moves.flatten()[order]


FAMILY = Family(
    _train,
    (
        *("constant_inputs", "single_label"),
        *("wrong_sign", "missing_step", "zero_init", "weight_decay_too_high"),
        *("lr_too_low", "lr_too_high"),
    ),
)
