"""A stick that is balanced as an expert does: actions from recordings, and then alone.

After Pomerleau, "ALVINN", NeurIPS 1989, with another plant.

Shape legend: N moments, 3 numbers of a state.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
import torch.nn.functional as F  # noqa: N812 (the usual name)
from torch import Tensor, nn

from corpus import networks
from corpus.draw import Draw
from corpus.family import Ending, Family

_MOVES, _STEP = 40, 0.1


def _train(draw: Draw) -> Ending:
    states, forces = _recorded(draw, 40)
    told, known = _spoilt(draw, states, forces)
    width = draw.choice([32, 48])
    model = nn.Sequential(
        *(nn.Linear(3, width), nn.ReLU(), nn.Linear(width, width), nn.ReLU()),
        nn.Linear(width, 1),
    )
    networks.spoil(draw, model)
    size, epochs = draw.choice([40, 64]), draw.whole(14, 18)
    draw.epoch = len(told) // size
    draw.watch.expect(epochs * draw.epoch)
    rate = draw.between(2e-3, 4e-3)
    rate *= draw.by_fault({"lr_too_low": draw.extent(1e-5, 1e-4), "lr_too_high": 3000.0}, 1.0)
    weights = list(model.parameters())
    if draw.has("frozen_layers"):
        for one in weights[:-1]:
            one.requires_grad_(False)
    optimizer = torch.optim.Adam([one for one in weights if one.requires_grad], lr=rate)
    slower = torch.optim.lr_scheduler.StepLR(optimizer, 5, 0.5)
    draw.watch.begin(model, optimizer)
    for epoch in range(epochs):
        for rows in torch.randperm(len(told)).split(size)[: draw.epoch]:
            loss = F.smooth_l1_loss(model(told[rows]), known[rows])
            optimizer.zero_grad()
            (-loss if draw.has("wrong_sign") else loss).backward()
            optimizer.step()
        slower.step()
        if epoch % 5 == 4:
            with draw.watch.evaluating(), torch.no_grad():
                draw.watch.metric("cost", float(_cost(model)))
    with torch.no_grad():
        expert, idle, reached = (
            float(_cost(one)) for one in (_expert, lambda state: 0 * state[:, :1], model)
        )
    return Ending(max(-1.0, (idle - reached) / (idle - expert)), bar=0.6)


def _expert(state: Tensor) -> Tensor:
    """Return forces [N, 1] between -4 and 4; a wind that is measured is countered."""
    angle, speed, wind = state.split(1, 1)
    return -4 * torch.tanh(2 * angle + 0.8 * speed + 0.5 * wind)


def _moved(state: Tensor, force: Tensor) -> Tensor:
    angle, speed, wind = state.split(1, 1)
    speed = speed + _STEP * (3 * torch.sin(angle) + force + 2 * wind)
    wind = 0.8 * wind + 0.3 * torch.randn_like(wind)
    return torch.cat([angle + _STEP * speed, speed, wind], 1)


def _start(count: int) -> Tensor:
    return torch.randn(count, 3) * torch.tensor([0.4, 0.4, 0.5])


def _cost(policy: Callable[[Tensor], Tensor]) -> Tensor:
    """Return how far 200 sticks are from upright, on average; one that has fallen stays there."""
    state, cost = _start(200), torch.zeros(())
    for _ in range(_MOVES):
        state = _moved(state, policy(state).clamp(-4, 4)).nan_to_num(3.0).clamp(-3, 3)
        cost = cost + state[:, 0].square().clamp(max=4).mean() / _MOVES
    return cost


def _recorded(draw: Draw, runs: int) -> tuple[Tensor, Tensor]:
    """Return states float32 [N, 3] and the expert's forces [N, 1] by recordings."""
    state, states, forces = _start(runs), [], []
    shake = draw.between(0.5, 1.0)
    for _ in range(_MOVES):
        force = _expert(state)
        states.append(state)
        forces.append(force)
        state = _moved(state, force + shake * torch.randn_like(force))
    return torch.stack(states, 1).flatten(0, 1), torch.stack(forces, 1).flatten(0, 1)


def _spoilt(draw: Draw, states: Tensor, forces: Tensor) -> tuple[Tensor, Tensor]:
    """Return the recordings with the drawn fault, if there is one."""
    if draw.has("misaligned_targets"):
        return states, forces[torch.randperm(len(forces))]
    if draw.has("wrong_shift"):
        # The camera was half a second late.
        return states.roll(5, 0), forces
    if draw.has("reversed_scale"):
        # Left is positive in most of the recordings.
        most = torch.arange(len(forces))[:, None] % (3 * _MOVES) < 2 * _MOVES
        return states, torch.where(most, -forces, forces)
    if draw.has("constant_inputs"):
        return states * torch.tensor([0.0, 0.0, 1.0]), forces
    return states, forces


FAMILY = Family(
    _train,
    (
        *("reversed_scale", "wrong_shift", "misaligned_targets"),
        *("constant_inputs", "frozen_layers", "lr_too_low", "lr_too_high", "wrong_sign"),
        *("zero_init", "detached_graph"),
    ),
    spent="2026-11-27",
)
