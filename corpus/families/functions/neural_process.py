"""Curves from a few of their points, with the uncertainty of each value.

After Garnelo et al., "Conditional neural processes", ICML 2018.

Shape legend: B curves, K points that are shown, P points that are asked for.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F  # noqa: N812 (the usual name)
from torch import Tensor, nn

from corpus import networks
from corpus.draw import Draw
from corpus.family import Ending, Family
from corpus.loop import explained


class Curves(nn.Module):
    """Summarises points, and returns a mean and a deviation for each place."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.summary = nn.Sequential(
            *(nn.Linear(2, width), nn.ReLU(), nn.Linear(width, width), nn.ReLU()),
            nn.Linear(width, width),
        )
        self.decoder = nn.Sequential(
            *(nn.Linear(width + 1, width), nn.ReLU(), nn.Linear(width, width), nn.ReLU()),
            nn.Linear(width, 2),
        )

    def forward(self, x: Tensor, y: Tensor, asked: Tensor) -> tuple[Tensor, Tensor]:
        """Return means and deviations [B, P] at places [B, P], from points [B, K]."""
        inner = self.summary(torch.stack([x, y], 2)).mean(1, keepdim=True)
        inner = inner.expand(-1, asked.shape[1], -1)
        mean, spread = self.decoder(torch.cat([inner, asked[:, :, None]], 2)).unbind(2)
        return mean, 0.05 + 0.95 * F.softplus(spread)


def _train(draw: Draw) -> Ending:
    model = Curves(draw.choice([64, 96]))
    networks.spoil(draw, model)
    if draw.has("symmetric_init"):
        for weight in model.parameters():
            nn.init.constant_(weight, 0.05)
    steps, size, shown = draw.steps(700, 1100), draw.choice([16, 32]), draw.choice([8, 12])
    rate = draw.between(1.5e-3, 3e-3)
    rate *= draw.by_fault({"lr_too_low": draw.extent(1e-5, 1e-3), "lr_too_high": 500.0}, 1.0)
    optimizer = torch.optim.Adam(model.parameters(), rate)
    if draw.has("not_in_optimizer"):
        optimizer = torch.optim.Adam(model.decoder[-1].parameters(), rate)
    draw.watch.begin(model, optimizer)
    x, y = _curves(300, 40)
    for step in range(1, steps + 1):
        places, values = _curves(size, shown + 12)
        told = values[:, :shown]
        if draw.has("data_mixing"):
            # The points of another curve are shown.
            told = told[torch.randperm(size)]
        if draw.has("constant_inputs"):
            told = torch.zeros_like(told)
        if draw.has("unnormalised_targets"):
            told, values = 1e4 * told, 1e4 * values
        mean, spread = model(places[:, :shown], told, places[:, shown:])
        wanted = values[:, shown:]
        misfit = 0.5 * ((wanted - mean) / spread).square()
        if draw.has("term_wrong_sign"):
            loss = (misfit - spread.log()).mean()
        else:
            loss = (misfit + spread.log()).mean()
        optimizer.zero_grad()
        (-loss if draw.has("wrong_sign") else loss).backward()
        optimizer.step()
        if step % 150 == 0:
            with draw.watch.evaluating(), torch.no_grad():
                mean, _ = model(x[:, :shown], y[:, :shown], x[:, shown:])
                draw.watch.metric("mse", float(F.mse_loss(mean, y[:, shown:])))
    return _ending(model, x, y, shown)


@torch.no_grad()
def _ending(model: Curves, x: Tensor, y: Tensor, shown: int) -> Ending:
    """Return the mean of what is explained and of how many values are within two deviations."""
    mean, spread = model(x[:, :shown], y[:, :shown], x[:, shown:])
    wanted = y[:, shown:]
    within = ((wanted - mean).abs() < 2 * spread).float().mean()
    narrow = float(within) if float(spread.mean()) < 1 else 0.0
    right = max(-1.0, explained(mean.flatten(), wanted.flatten()))
    return Ending(0.7 * right + 0.3 * narrow, bar=0.6)


def _curves(count: int, points: int) -> tuple[Tensor, Tensor]:
    """Return places and values [count, points] of waves on a slope."""
    x = 4 * torch.rand(count, points) - 2
    phase, size = 6.3 * torch.rand(count, 1), 0.5 + torch.rand(count, 1)
    y = size * torch.sin(1.5 * x + phase) + 0.4 * torch.randn(count, 1) * x
    return x, y + 0.05 * torch.randn_like(y)


FAMILY = Family(
    _train,
    (
        *("data_mixing", "constant_inputs", "unnormalised_targets", "term_wrong_sign"),
        *("lr_too_low", "lr_too_high", "not_in_optimizer", "wrong_sign", "zero_init"),
        *("large_init", "detached_graph", "symmetric_init"),
    ),
    spent="2026-11-27",
)
