"""Boats that are steered to a buoy: a policy that learns through the laws of motion.

After Mora et al., "PODS: policy optimization via differentiable simulation", ICML 2021.

Shape legend: N boats, 4 numbers of a state.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn

from corpus import networks
from corpus.draw import Draw
from corpus.family import Ending, Family


class Helm(nn.Module):
    """Forces [N, 2] between -1 and 1 of states [N, 4], place and speed."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.inner, self.outer = nn.Linear(4, width), nn.Linear(width, 2)

    def forward(self, state: Tensor) -> Tensor:
        """Return the forces."""
        return torch.tanh(self.outer(torch.tanh(self.inner(state))))


def _train(draw: Draw) -> Ending:
    moves, drag = draw.choice([24, 30]), draw.between(0.05, 0.15)
    model = Helm(draw.choice([24, 40]))
    networks.spoil(draw, model)
    steps, size = draw.steps(250, 400), draw.choice([32, 64])
    rate = draw.between(3e-3, 8e-3)
    rate *= draw.by_fault({"lr_too_low": draw.extent(1e-5, 1e-4), "lr_too_high": 3000.0}, 1.0)
    decay = draw.by_fault({"weight_decay_too_high": 0.3 / rate}, 0.0)
    weights = list(model.parameters())
    if draw.has("not_in_optimizer"):
        weights = weights[-1:]
    optimizer = torch.optim.AdamW(weights, lr=rate, weight_decay=decay)
    cosine = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, steps, rate / 10)
    draw.watch.begin(model, optimizer)
    for step in range(1, steps + 1):
        cost = _sailed(draw, model, _start(size), moves, drag)
        optimizer.zero_grad(set_to_none=False)
        (-cost if draw.has("wrong_sign") else cost).backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        cosine.step()
        if step % 50 == 0:
            with draw.watch.evaluating(), torch.no_grad():
                draw.watch.metric("distance", float(_sailed(draw, model, _start(200), moves, drag)))
    with torch.no_grad():
        start, calm = _start(500), draw.without_fault()
        drifted = _sailed(calm, lambda state: 0 * state[:, :2], start, moves, drag)
        reached = _sailed(calm, model, start, moves, drag)
    return Ending(max(-1.0, 1 - float(reached / drifted)), bar=0.5)


def _sailed(
    draw: Draw, helm: Callable[[Tensor], Tensor], state: Tensor, moves: int, drag: float
) -> Tensor:
    """Return the mean cost of boats on their way."""
    cost = torch.zeros(())
    for _ in range(moves):
        told = state
        if draw.has("constant_inputs"):
            # The sensors were not connected.
            told = torch.zeros_like(state)
        force = helm(told)
        place, speed = state.split(2, 1)
        speed = (1 - drag) * speed + 0.2 * force
        place = place + 0.2 * speed
        state = torch.cat([place, speed], 1)
        if draw.has("state_detached"):
            # To save memory.
            state = state.detach()
        distance = state[:, :2].square().sum(1) + 0.1 * state[:, 2:].square().sum(1)
        cost = cost + (distance + 0.02 * force.square().sum(1)).mean() / moves
    return cost


def _start(count: int) -> Tensor:
    """Return states float32 [count, 4] at some distance from the buoy, which is at the origin."""
    place = 2 * torch.rand(count, 2) - 1
    return torch.cat([1.5 * place, 0.5 * torch.randn(count, 2)], 1)


FAMILY = Family(
    _train,
    (
        *("state_detached", "not_in_optimizer", "constant_inputs", "lr_too_low"),
        *("lr_too_high", "weight_decay_too_high", "wrong_sign", "zero_init", "large_init"),
    ),
    spent="2026-11-27",
)
