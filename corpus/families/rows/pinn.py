"""A physics-informed network: u'' + w² u = 0 with two conditions, by derivatives of the network."""

from __future__ import annotations

import itertools

import torch
from torch import Tensor, nn

from corpus import networks, optimisation
from corpus.draw import Draw
from corpus.family import Ending, Family
from corpus.loop import evaluation, explained, run_loop


def _train(draw: Draw) -> Ending:
    pace, count = draw.between(1.0, 4.0), draw.choice([32, 64, 128])
    width, depth = draw.choice([24, 32, 48]), draw.choice([2, 3])
    sizes = [1, *[width] * depth]
    layers: list[nn.Module] = []
    for before, after in itertools.pairwise(sizes):
        layers += [nn.Linear(before, after), nn.Tanh()]
    model = nn.Sequential(*layers, nn.Linear(width, 1))
    networks.spoil(draw, model)
    steps = draw.steps(500, 1200)
    optimiser = optimisation.Optimisation(
        draw, model, steps, scale=1.5, kinds=("adam", "adamw"), accumulates=False
    )
    start = torch.zeros(1, 1, requires_grad=True)
    weight = draw.choice([1.0, 5.0])
    sign = draw.by_fault({"term_left_out": 0.0, "term_wrong_sign": -1.0}, 1.0)

    def compute() -> Tensor:
        times = torch.rand(count, 1, requires_grad=True)
        u = model(times)
        speed = _derivative(u, times)
        residual = (_derivative(speed, times) / pace**2 + u).square().mean()
        first = model(start)
        given = (first - 1).square().mean() + (_derivative(first, start) / pace).square().mean()
        total: Tensor = residual + sign * weight * given
        return total

    run_loop(draw, model, optimiser, steps, compute=compute)
    times = torch.linspace(0, 1, 200)[:, None]
    with evaluation(draw, model):
        return Ending(explained(model(times), (pace * times).cos()), bar=0.85, margin=0.3)


def _derivative(value: Tensor, of: Tensor) -> Tensor:
    (found,) = torch.autograd.grad(value.sum(), of, create_graph=True)
    return found


FAMILY = Family(
    _train,
    (
        *(one for one in optimisation.FAULTS if one not in ("clip_too_small", "half_underflow")),
        *("zero_init", "large_init", "small_init", "term_left_out", "term_wrong_sign"),
        "saturation",
    ),
    spent="2026-11-23",
)
