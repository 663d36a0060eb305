"""A Gaussian process whose kernel is learned by the marginal likelihood of all rows.

After Rasmussen and Williams, "Gaussian processes for machine learning", 2006, chapter 5.

Shape legend: N rows, F features, M held-out rows.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn

from corpus.draw import Draw
from corpus.family import Ending, Family
from corpus.loop import explained


class Process(nn.Module):
    """A kernel with a length for each feature, its amplitude, and noise; all as logarithms."""

    def __init__(self, features: int) -> None:
        super().__init__()
        self.log_length = nn.Parameter(torch.full((features,), 0.5))
        self.log_scale = nn.Parameter(torch.zeros(()))
        self.log_noise = nn.Parameter(torch.tensor(-0.5))

    def kernel(self, x: Tensor, other: Tensor) -> Tensor:
        """Return covariances [N, M] of rows [N, F] and [M, F]."""
        length = self.log_length.exp()
        distance = torch.cdist(x / length, other / length).square()
        return (2 * self.log_scale).exp() * (-0.5 * distance).exp()

    def covariance(self, x: Tensor) -> Tensor:
        """Return the covariance [N, N] of noisy values."""
        noise = (2 * self.log_noise).exp() + 1e-4
        return self.kernel(x, x) + noise * torch.eye(len(x))

    def forward(self, x: Tensor, y: Tensor) -> Tensor:
        """Return the negative log marginal likelihood per row of values [N]."""
        factor = torch.linalg.cholesky(self.covariance(x))
        weights = torch.cholesky_solve(y[:, None], factor)[:, 0]
        fit = 0.5 * (y @ weights)
        volume = factor.diagonal().log().sum()
        loss: Tensor = (fit + volume) / len(x) + 0.5 * math.log(2 * math.pi)
        return loss


def _train(draw: Draw) -> Ending:
    features, count = draw.choice([4, 6]), draw.choice([120, 160])
    x, y = _rows(draw, count + 300, features)
    seen, known = x[:count].clone(), y[:count].clone()
    if draw.has("misaligned_targets"):
        known = known[torch.randperm(count)]
    if draw.has("unnormalised_targets"):
        known = 2e3 * known + 1e4
    if draw.has("unnormalised_inputs"):
        seen, x = seen * 1e4, x * 1e4
    if draw.has("constant_inputs"):
        seen = torch.zeros_like(seen)
    model = Process(features)
    steps = draw.steps(150, 260)
    rate = draw.between(0.03, 0.08)
    rate *= draw.by_fault({"lr_too_low": draw.extent(1e-4, 1e-3), "lr_too_high": 300.0}, 1.0)
    optimizer = torch.optim.Adam(model.parameters(), lr=rate)
    if draw.has("not_in_optimizer"):
        # The noise alone: the list was written before the lengths.
        optimizer = torch.optim.Adam([model.log_noise, model.log_scale], lr=rate)
    if draw.has("wrong_parameters"):
        optimizer = torch.optim.Adam(Process(features).parameters(), lr=rate)
    draw.watch.begin(model, optimizer)
    every = draw.choice([0, 25, 50])
    for step in range(steps):
        optimizer.zero_grad()
        loss = model(seen, known)
        if draw.has("wrong_sign"):
            loss = -loss
        loss.backward()
        optimizer.step()
        if every and step % every == every - 1:
            with draw.watch.evaluating():
                draw.watch.metric("r2", explained(_mean(model, seen, known, x[count:]), y[count:]))
    return Ending(max(-1.0, explained(_mean(model, seen, known, x[count:]), y[count:])), bar=0.6)


@torch.no_grad()
def _mean(model: Process, seen: Tensor, known: Tensor, x: Tensor) -> Tensor:
    """Return the expected values [M] of rows [M, F]."""
    factor = torch.linalg.cholesky(model.covariance(seen))
    return model.kernel(x, seen) @ torch.cholesky_solve(known[:, None], factor)[:, 0]


def _rows(draw: Draw, count: int, features: int) -> tuple[Tensor, Tensor]:
    """Return rows float32 [count, F], of which two features count, and values float32 [count]."""
    x = torch.randn(count, features)
    y = torch.sin(2.5 * x[:, 0]) + torch.cos(1.5 * x[:, 1])
    y = (y - y.mean()) / y.std()
    return x, y + draw.between(0.05, 0.15) * torch.randn(count)


FAMILY = Family(
    _train,
    (
        *("misaligned_targets", "unnormalised_targets", "unnormalised_inputs", "constant_inputs"),
        *("lr_too_low", "lr_too_high", "not_in_optimizer", "wrong_parameters", "wrong_sign"),
    ),
    spent="2026-11-27",
)
