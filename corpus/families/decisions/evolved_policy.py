"""A pendulum that is swung up by a policy which evolution finds: no loss, and no `backward()`.

After Salimans et al., "Evolution strategies as a scalable alternative to reinforcement learning",
2017.

Shape legend: K changed policies, N pendulums.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor, nn

from corpus.draw import Draw
from corpus.family import Ending, Family

_TIME, _SIGMA = 50, 0.15


def _train(draw: Draw) -> Ending:
    width = draw.choice([8, 12])
    policy = nn.Sequential(nn.Linear(3, width), nn.Tanh(), nn.Linear(width, 1))
    generations, half = draw.steps(110, 160), draw.choice([16, 24])
    rate = draw.between(0.05, 0.08)
    rate *= draw.by_fault({"lr_too_low": draw.extent(1e-5, 1e-4), "lr_too_high": 1e4}, 1.0)
    decay = 100.0 if draw.has("weight_decay_too_high") else 0.0
    weights = list(policy.parameters())
    trained = weights
    if draw.has("wrong_parameters"):
        trained = [nn.Parameter(one.detach().clone()) for one in weights]
    optimizer = torch.optim.Adam(trained, lr=rate, weight_decay=decay)
    draw.watch.begin(policy, optimizer)
    for generation in range(1, generations + 1):
        noise = [torch.randn(half, *one.shape) for one in weights]
        noise = [torch.cat([one, -one]) for one in noise]
        changed = [w.detach() + _SIGMA * one for w, one in zip(weights, noise, strict=True)]
        fitness = _returns(changed, 6, blind=draw.has("constant_inputs"))
        if draw.has("misaligned_targets"):
            # The workers answer in another order than they were asked.
            fitness = fitness[torch.randperm(len(fitness))]
        rank = fitness.argsort().argsort() / (2 * half - 1) - 0.5
        for weight, one in zip(trained, noise, strict=True):
            better = (rank.view(-1, *[1] * weight.dim()) * one).mean(0) / _SIGMA
            weight.grad = better if draw.has("wrong_sign") else -better
        if not draw.has("missing_step"):
            optimizer.step()
        if generation % 20 == 0:
            with draw.watch.evaluating():
                draw.watch.metric("return", _mean_return(weights))
    idle = _mean_return([torch.zeros_like(one) for one in weights])
    return Ending((_mean_return(weights) - idle) / (0.78 - idle), bar=0.5)


def _mean_return(weights: Sequence[Tensor]) -> float:
    """Return the mean height, from -1 to 1, that a policy reaches."""
    return float(_returns([one.detach()[None] for one in weights], 100, blind=False))


def _returns(weights: Sequence[Tensor], count: int, *, blind: bool) -> Tensor:
    """Return the mean height [K] that policies reach, of which each has the same pendulums.

    Args:
        weights: weights and biases of two layers, each [K, ...].
        count: number of pendulums.
        blind: whether the policies see nothing.
    """
    first, bias, last, lift = weights
    angle = (math.pi + torch.rand(count) - 0.5).expand(len(first), count)
    speed, total = torch.zeros_like(angle), torch.zeros(len(first))
    for _ in range(_TIME):
        seen = torch.stack([angle.cos(), angle.sin(), speed / 4], 2)
        if blind:
            seen = torch.zeros_like(seen)
        inner = torch.tanh(seen @ first.transpose(1, 2) + bias[:, None])
        force = torch.tanh(inner @ last.transpose(1, 2) + lift[:, None])[:, :, 0]
        speed = (speed + 0.15 * (3 * angle.sin() + 4 * force.nan_to_num())).clamp(-8, 8)
        angle = angle + 0.15 * speed
        total = total + angle.cos().mean(1)
    return total / _TIME


FAMILY = Family(
    _train,
    (
        *("misaligned_targets", "constant_inputs", "lr_too_low", "lr_too_high", "wrong_sign"),
        *("weight_decay_too_high", "wrong_parameters", "missing_step"),
    ),
    spent="2026-11-27",
)
