"""A diffusion model of points in the plane: noise is predicted, and removed step by step.

After Ho et al., "Denoising diffusion probabilistic models", NeurIPS 2020.

Shape legend: N points.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F  # noqa: N812 (the usual name)
from torch import Tensor, nn

from corpus import networks
from corpus.data.plane import discrepancy, points
from corpus.data.rows import batches
from corpus.draw import Draw
from corpus.family import Ending, Family
from corpus.loop import evaluation, run_loop
from corpus.losses import Loss
from corpus.optimisation import Optimisation


class Denoiser(nn.Module):
    """Noise in points at a level of noise."""

    def __init__(self, width: int, depth: int) -> None:
        super().__init__()
        layers: list[nn.Module] = [nn.Linear(2 + 8, width), nn.SiLU()]
        for _ in range(depth):
            layers += [nn.Linear(width, width), nn.SiLU()]
        self.net = nn.Sequential(*layers, nn.Linear(width, 2))

    def forward(self, x: Tensor, level: Tensor) -> Tensor:
        """Return the noise [N, 2] of points [N, 2] at levels [N] between 0 and 1."""
        waves = level[:, None] * torch.tensor([1.0, 3.0, 9.0, 27.0])
        noise: Tensor = self.net(torch.cat([x, waves.sin(), waves.cos()], 1))
        return noise


def _train(draw: Draw) -> Ending:
    x = points(draw, 3000)
    count = draw.choice([30, 40, 60])
    kept = _kept_signal(count)
    model = Denoiser(draw.choice([96, 128]), draw.choice([1, 2]))
    networks.spoil(draw, model)
    steps = draw.steps(700, 1400)
    optimiser = Optimisation(
        draw, model, steps, scale=3.0, kinds=("adam", "adamw"), accumulates=False
    )
    usual: list[Loss] = [nn.MSELoss(), F.mse_loss]
    loss = draw.watch.loss(draw.choice(usual))
    size = draw.choice([128, 256])
    source = batches(draw, x, x, size)

    def compute() -> Tensor:
        clean, _ = next(source)
        noise = torch.randn_like(clean)
        level = torch.randint(count, (len(clean),))
        signal = kept[level][:, None]
        if draw.has("noise_schedule"):
            # The variances took the place of the standard deviations that the sampler uses.
            noised = signal.square() * clean + (1 - signal).square() * noise
        else:
            noised = signal.sqrt() * clean + (1 - signal).sqrt() * noise
        if draw.has("time_left_out"):
            level = torch.zeros_like(level)
        predicted = model(noised, level / count)
        # The noised points are what the network sees.
        return loss(predicted, noised if draw.has("target_leak") else noise)

    run_loop(draw, model, optimiser, steps, compute=compute)
    with evaluation(draw, model):
        made = _sampled(model, kept, 1500)
    if not made.isfinite().all():
        return Ending(float("nan"), bar=0.6)
    gaussian = torch.randn(1500, 2)
    return Ending(1 - discrepancy(made, x) / discrepancy(gaussian, x), bar=0.6)


def _kept_signal(count: int) -> Tensor:
    """Return the share of the signal's variance at each level [count], a cosine schedule."""
    place = (torch.arange(1, count + 1) / count + 0.008) / 1.008
    return (place * torch.pi / 2).cos().square().clamp(1e-3, 0.9999)


def _sampled(model: nn.Module, kept: Tensor, count: int) -> Tensor:
    """Return points [count, 2] that are made of noise."""
    x, levels = torch.randn(count, 2), len(kept)
    for place in reversed(range(levels)):
        before = kept[place - 1] if place else torch.tensor(1.0)
        alpha = kept[place] / before
        noise = model(x, torch.full((count,), place / levels))
        x = (x - (1 - alpha) / (1 - kept[place]).sqrt() * noise) / alpha.sqrt()
        if place:
            x = x + ((1 - alpha) * (1 - before) / (1 - kept[place])).sqrt() * torch.randn_like(x)
    return x


FAMILY = Family(
    _train,
    (
        *("noise_schedule", "time_left_out", "target_leak", "same_batch"),
        *("lr_too_high", "lr_too_low", "scheduler_per_batch", "missing_zero_grad"),
        *("not_in_optimizer", "weight_decay_too_high", "zero_init", "detached_graph"),
    ),
    spent="2026-11-25",
)
