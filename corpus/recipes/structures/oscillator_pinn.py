"""A physics-informed network of a damped oscillator.

Settings: Moseley's introduction to such networks (benmoseley.blog, 2021; after Raissi et al.,
2019): three layers of 32 with tanh, Adam with a rate of 1e-3, 30 points at which the equation
holds, u(0) = 1, u'(0) = 0, a weight of 1e-1 for the velocity and of 1e-4 for the equation. The
frequency is 8 instead of 20, and the last weight 1e-3, for fewer steps.

Shape legend: N times.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

import torch
from torch import Tensor, nn

from corpus.draw import Draw
from corpus.family import Ending, Family
from corpus.loop import evaluation, explained, report_metrics

_STEPS, _DAMPING, _FREQUENCY = 1500, 2.0, 8.0


def _train(draw: Draw) -> Ending:
    draw.watch.expect(_STEPS)
    model = nn.Sequential(
        *(nn.Linear(1, 32), nn.Tanh(), nn.Linear(32, 32), nn.Tanh()),
        *(nn.Linear(32, 32), nn.Tanh(), nn.Linear(32, 1)),
    )
    rate = 1e-6 if draw.has("lr_too_low") else 1e-3
    optimizer = torch.optim.Adam(model.parameters(), lr=rate)
    draw.watch.begin(model, optimizer)
    inside = torch.linspace(0, 1, 30)[:, None].requires_grad_()
    begin = torch.zeros(1, 1).requires_grad_()
    pull = _FREQUENCY**2 * (-1 if draw.has("term_wrong_sign") else 1)

    def measure() -> Mapping[str, float]:
        times = torch.linspace(0, 1, 50)[:, None]
        return {"mse": float((model(times) - _solution(times)).square().mean())}

    for step in range(_STEPS):
        optimizer.zero_grad()
        value = model(begin)
        loss = (value - 1).square().mean() + 0.1 * _slope(value, begin).square().mean()
        if draw.has("term_left_out"):
            loss = 0.1 * _slope(value, begin).square().mean()
        u = model(inside)
        speed = _slope(u, inside)
        residual = _slope(speed, inside) + 2 * _DAMPING * speed + pull * u
        (loss + 1e-3 * residual.square().mean()).backward()
        optimizer.step()
        if step % 300 == 299:
            report_metrics(draw, model, measure)
    times = torch.linspace(0, 1, 200)[:, None]
    with evaluation(draw, model):
        return Ending(explained(model(times), _solution(times)), bar=0.8)


def _slope(values: Tensor, times: Tensor) -> Tensor:
    """Return the derivatives [N, 1] of values [N, 1] by their times."""
    return torch.autograd.grad(values.sum(), times, create_graph=True)[0]


def _solution(times: Tensor) -> Tensor:
    """Return the solution of the equation at times, both [N, 1]."""
    frequency = math.sqrt(_FREQUENCY**2 - _DAMPING**2)
    wave = (frequency * times).cos() + _DAMPING / frequency * (frequency * times).sin()
    return (-_DAMPING * times).exp() * wave


FAMILY = Family(_train, ("term_wrong_sign", "term_left_out", "lr_too_low"), spent="2026-11-25")
