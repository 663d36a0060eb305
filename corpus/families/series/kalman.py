"""Positions of swinging masses, by a Kalman filter whose matrices are learned.

After Kalman, "A new approach to linear filtering and prediction problems", Journal of Basic
Engineering 1960; the likelihood of the innovations is followed through the filter.

Shape legend: N runs, T times, 2 positions, 4 numbers of a state.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn

from corpus.draw import Draw
from corpus.family import Ending, Family
from corpus.loop import explained

_TIME, _SEEN = 16, 300


class Filter(nn.Module):
    """A linear filter: moves of the state, what is seen of it, and the noise of both."""

    def __init__(self) -> None:
        super().__init__()
        # Places and speeds, until it is known what moves them.
        drift = torch.eye(4) + torch.diag(torch.ones(2), 2)
        self.move = nn.Parameter(drift + 0.1 * torch.randn(4, 4))
        self.view = nn.Parameter(torch.eye(2, 4) + 0.1 * torch.randn(2, 4))
        self.log_move_noise = nn.Parameter(torch.full((4,), -2.0))
        self.log_view_noise = nn.Parameter(torch.full((2,), -1.0))

    def forward(self, state: Tensor, spread: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """Return the next state and its covariance, and the same of what will be seen."""
        state = state @ self.move.T
        spread = self.move @ spread @ self.move.T + self.log_move_noise.exp().diag()
        seen = self.view @ spread @ self.view.T + self.log_view_noise.exp().diag()
        return state, spread, state @ self.view.T, seen


def _train(draw: Draw) -> Ending:
    runs = _runs(draw, 400)
    seen = runs[:_SEEN]
    if draw.has("constant_inputs"):
        seen = torch.zeros_like(seen)
    if draw.has("time_shuffled"):
        seen = seen[:, torch.randperm(_TIME)]
    model = Filter()
    if draw.has("zero_init"):
        for weight in (model.move, model.view):
            nn.init.zeros_(weight)
    if draw.has("large_init"):
        nn.init.normal_(model.move, std=4.0)
    size, steps = draw.choice([50, 75]), draw.steps(260, 400)
    rate = draw.between(0.02, 0.03)
    rate *= draw.by_fault({"lr_too_low": draw.extent(1e-5, 1e-4), "lr_too_high": 1000.0}, 1.0)
    weights: list[nn.Parameter] = list(model.parameters())
    if draw.has("not_in_optimizer"):
        weights = [model.log_move_noise, model.log_view_noise]
    optimizer = torch.optim.Adam(weights, lr=rate)
    draw.watch.begin(model, optimizer)
    for step in range(steps):
        loss, _ = _filtered(draw, model, seen[torch.randint(_SEEN, (size,))])
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(weights, 20.0)
        optimizer.step()
        if step % 60 == 59:
            with draw.watch.evaluating(), torch.no_grad():
                _, found = _filtered(draw, model, runs[_SEEN:])
                draw.watch.metric("mse", float((found - runs[_SEEN:]).square().mean()))
    with torch.no_grad():
        _, found = _filtered(draw, model, runs[_SEEN:])
    # The first ones are to find out where a mass is.
    late = (found[:, 6:].flatten(1), runs[_SEEN:, 6:].flatten(1))
    return Ending(max(-1.0, explained(*late)), bar=0.5)


def _filtered(draw: Draw, model: Filter, runs: Tensor) -> tuple[Tensor, Tensor]:
    """Return the negative log-likelihood of runs [N, T, 2], and the predictions of each time."""
    start = state = torch.zeros(len(runs), 4)
    spread, lost, found = torch.eye(4), torch.zeros(()), []
    for now in runs.unbind(1):
        state, spread, expected, seen = model(start if draw.has("state_reset") else state, spread)
        found.append(expected)
        inverse = torch.linalg.inv(seen)
        missed = now - expected
        surprise = ((missed @ inverse) * missed).sum(1).mean()
        size = torch.logdet(seen)
        lost = lost + surprise + (-size if draw.has("log_det_sign") else size)
        gain = spread @ model.view.T @ inverse
        state = state + missed @ gain.T
        spread = spread - gain @ model.view @ spread
    return lost / (2 * _TIME), torch.stack(found, 1)


def _runs(draw: Draw, count: int) -> Tensor:
    """Return noisy positions float32 [count, T, 2] of two swinging masses."""
    pace = torch.tensor([draw.between(0.5, 0.7), draw.between(0.8, 1.0)])
    phase = 2 * math.pi * torch.rand(count, 1, 2)
    swing = (0.7 + 0.6 * torch.rand(count, 1, 2)) * torch.sin(
        pace * torch.arange(_TIME)[:, None] + phase
    )
    return swing + draw.between(0.05, 0.1) * torch.randn(count, _TIME, 2)


FAMILY = Family(
    _train,
    (
        *("state_reset", "log_det_sign", "time_shuffled"),
        *("constant_inputs", "lr_too_low", "lr_too_high", "not_in_optimizer"),
        *("zero_init", "large_init"),
    ),
    spent="2026-11-27",
)
