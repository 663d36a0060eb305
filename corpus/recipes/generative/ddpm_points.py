"""Denoising diffusion of points in the plane.

Settings: Ho et al., "Denoising diffusion probabilistic models", NeurIPS 2020 (the noise is
predicted, the schedule is linear), with the network and the rates of public two-dimensional
versions: 50 noise levels, sinusoidal embeddings, three layers of 128, AdamW with a rate of 1e-3,
gradients clipped at 1.

Shape legend: N points.
"""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F  # noqa: N812 (the usual name)
from sklearn.datasets import make_moons
from torch import Tensor, nn

from corpus.data.plane import discrepancy
from corpus.data.rows import batches
from corpus.draw import Draw
from corpus.family import Ending, Family

_STEPS, _LEVELS = 2000, 50


class Denoiser(nn.Module):
    """Noise [N, 2] in points [N, 2] at levels int64 [N]."""

    def __init__(self) -> None:
        super().__init__()
        self.joint = nn.Sequential(nn.Linear(2 + 32, 128), nn.GELU())
        self.layers = nn.Sequential(
            *(nn.Linear(128, 128), nn.GELU(), nn.Linear(128, 128), nn.GELU(), nn.Linear(128, 2))
        )

    def forward(self, x: Tensor, level: Tensor) -> Tensor:
        """Predict the noise."""
        rates = torch.exp(-math.log(10_000) * torch.arange(16) / 16)
        angles = level[:, None] * rates
        known = torch.cat([x, angles.sin(), angles.cos()], dim=1)
        noise: Tensor = self.layers(self.joint(known))
        return noise


def _train(draw: Draw) -> Ending:
    draw.watch.expect(_STEPS)
    moons = make_moons(4000, noise=0.05, random_state=draw.random.getrandbits(31))[0]
    points = torch.tensor((moons - moons.mean(0)) / moons.std(0), dtype=torch.float32)
    known, held_out = points[:3000], points[3000:]
    betas = torch.linspace(1e-4, 0.2, _LEVELS)
    kept = torch.cumprod(1 - betas, 0)
    model = Denoiser()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    draw.watch.begin(model, optimizer)
    loss = draw.watch.loss(F.mse_loss)
    source = batches(draw, known, known, 128)
    for _ in range(_STEPS):
        x, _ = next(source)
        level = torch.randint(_LEVELS, (len(x),))
        noise = torch.randn_like(x)
        share = kept[level][:, None]
        if draw.has("noise_schedule"):
            # Without roots, the variance is not kept.
            noisy = share * x + (1 - share) * noise
        else:
            noisy = share.sqrt() * x + (1 - share).sqrt() * noise
        # Drawn once more, the noise is another one than that in the points.
        wanted = torch.randn_like(x) if draw.has("shuffled_labels") else noise
        optimizer.zero_grad()
        loss(model(noisy, level), wanted).backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        if not draw.has("missing_step"):
            optimizer.step()
    fake = _sampled(model, 1000, betas, kept)
    far = discrepancy(torch.randn(1000, 2), held_out)
    return Ending(1 - discrepancy(fake, held_out) / far, bar=0.7, margin=0.15)


@torch.no_grad()
def _sampled(model: nn.Module, count: int, betas: Tensor, kept: Tensor) -> Tensor:
    """Return points [N, 2] made of noise."""
    x = torch.randn(count, 2)
    for level in reversed(range(_LEVELS)):
        noise = model(x, torch.full((count,), level))
        x = (x - betas[level] / (1 - kept[level]).sqrt() * noise) / (1 - betas[level]).sqrt()
        if level:
            x = x + betas[level].sqrt() * torch.randn_like(x)
    return x


FAMILY = Family(_train, ("noise_schedule", "shuffled_labels", "missing_step"), spent="2026-11-25")
