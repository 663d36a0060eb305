"""A Wasserstein GAN with gradient penalty, of eight clusters in the plane.

Settings: Gulrajani et al., "Improved training of Wasserstein GANs", NeurIPS 2017, toy data: a
penalty of 0.1, Adam with betas 0.5 and 0.9, five critic steps per generator step, a batch of 256.
Layers have 128 units instead of 512, and the rate is 1e-3 instead of 1e-4, for fewer steps.

Shape legend: N points.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn

from corpus.data.plane import discrepancy
from corpus.draw import Draw
from corpus.family import Ending, Family

_STEPS, _CRITIC_STEPS, _BATCH, _PENALTY = 350, 5, 128, 0.1


def _layers(outputs: int) -> nn.Sequential:
    return nn.Sequential(
        *(nn.Linear(2, 128), nn.ReLU(), nn.Linear(128, 128), nn.ReLU()),
        *(nn.Linear(128, 128), nn.ReLU(), nn.Linear(128, outputs)),
    )


def _train(draw: Draw) -> Ending:
    draw.watch.expect(_STEPS * (_CRITIC_STEPS + 1))
    generator, critic = _layers(2), _layers(1)
    steps_g = torch.optim.Adam(generator.parameters(), lr=1e-3, betas=(0.5, 0.9))
    steps_d = torch.optim.Adam(critic.parameters(), lr=1e-3, betas=(0.5, 0.9))
    draw.watch.begin(critic, steps_d, name="critic")
    draw.watch.begin(generator, steps_g, name="generator")
    sign = -1 if draw.has("term_wrong_sign") else 1
    for _ in range(_STEPS):
        for _ in range(_CRITIC_STEPS):
            real, fake = _clusters(_BATCH), generator(torch.randn(_BATCH, 2)).detach()
            if not draw.has("missing_zero_grad"):
                steps_d.zero_grad()
            penalty = _penalty(critic, real, fake)
            distance = critic(fake).mean() - critic(real).mean()
            (distance + sign * _PENALTY * penalty).backward()
            steps_d.step()
        steps_g.zero_grad()
        rated = critic(generator(torch.randn(_BATCH, 2))).mean()
        (rated if draw.has("wrong_sign") else -rated).backward()
        steps_g.step()
    with torch.no_grad():
        fake = generator(torch.randn(1000, 2))
    real = _clusters(1000)
    # Clusters are narrower than the kernel; a Gaussian distribution has none.
    far, near = (discrepancy(3 * one, 3 * real) for one in (torch.randn(1000, 2), fake))
    return Ending(1 - near / far, bar=0.3, margin=0.3)


def _penalty(critic: nn.Module, real: Tensor, fake: Tensor) -> Tensor:
    """Return how far the norms of the gradients between the points are from 1, squared."""
    share = torch.rand(len(real), 1)
    between = (share * real + (1 - share) * fake).requires_grad_()
    (slope,) = torch.autograd.grad(critic(between).sum(), between, create_graph=True)
    too_far: Tensor = slope.norm(dim=1) - 1
    return too_far.square().mean()


def _clusters(count: int) -> Tensor:
    """Return points [N, 2] around eight corners."""
    angle = torch.randint(8, (count,)) * (math.pi / 4)
    corners = torch.stack([angle.cos(), angle.sin()], 1) * math.sqrt(2)
    return corners + 0.03 * torch.randn(count, 2)


FAMILY = Family(_train, ("term_wrong_sign", "wrong_sign", "missing_zero_grad"), spent="2026-11-25")
