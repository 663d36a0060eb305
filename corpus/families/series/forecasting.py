"""The next values of several time series, by a transformer's encoder.

After Zhou et al., "Informer", AAAI 2021, without its sparse attention.

Shape legend: N windows, T values of the past, H values to forecast.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

import torch
from torch import Tensor, nn

from corpus import losses, networks
from corpus.draw import Draw
from corpus.family import Ending, Family
from corpus.loop import evaluation, explained, run_loop
from corpus.optimisation import Optimisation

_PAST, _AHEAD = 24, 6


class Forecaster(nn.Module):
    """Attention among the values of the past, and a head on the last of them."""

    def __init__(self, width: int, layers: int, dropout: float) -> None:
        super().__init__()
        self.value = nn.Linear(1, width)
        self.place = nn.Parameter(0.1 * torch.randn(_PAST, width))
        block = nn.TransformerEncoderLayer(
            width, 4, 2 * width, dropout, batch_first=True, norm_first=True
        )
        self.encoder = nn.TransformerEncoder(block, layers, enable_nested_tensor=False)
        self.head = nn.Linear(width, _AHEAD)

    def forward(self, x: Tensor) -> Tensor:
        """Return values [N, H] that follow values [N, T]."""
        inner = self.encoder(self.value(x[:, :, None]) + self.place)
        ahead: Tensor = self.head(inner[:, -1])
        return ahead


def _train(draw: Draw) -> Ending:
    series = _series(draw, 1600)
    border = 1300
    known, later = series[:, :border], series[:, border:]
    if draw.has("unnormalised_inputs"):
        scale = draw.extent(1e3, 1e5)
        known, later = (part * scale for part in (known, later))
    dropout = draw.amount.uniform(0.9, 0.97) if draw.has("dropout_too_high") else 0.1
    model = Forecaster(32, draw.choice([1, 2]), dropout)
    networks.spoil(draw, model)
    steps, size = draw.steps(200, 400), draw.choice([32, 48])
    optimiser = Optimisation(draw, model, steps, scale=2.0, kinds=("adam", "adamw"))
    loss = losses.value_loss(draw)
    leaks = draw.has("target_leak")

    def windows(part: Tensor, count: int, *, leak: bool) -> tuple[Tensor, Tensor]:
        rows = torch.randint(len(part), (count,))
        starts = torch.randint(part.shape[1] - _PAST - _AHEAD + 1, (count, 1))
        found = part[rows[:, None], starts + torch.arange(_PAST + _AHEAD)]
        # The window of the past ends where the forecast does.
        return found[:, _AHEAD:] if leak else found[:, :_PAST], found[:, _PAST:]

    def compute() -> Tensor:
        past, ahead = windows(known, size, leak=leaks)
        if draw.has("shuffled_labels"):
            ahead = ahead[torch.randperm(size)]
        if draw.has("misaligned_targets"):
            ahead = ahead.flip(1)
        return loss(model(past), ahead)

    tested = windows(later, 400, leak=False)

    def evaluate() -> Mapping[str, float]:
        return {"mse/valid": float((model(tested[0]) - tested[1]).square().mean())}

    chosen = evaluate if draw.chance(0.6) else None
    run_loop(draw, model, optimiser, steps, compute=compute, evaluate=chosen)
    with evaluation(draw, model):
        return Ending(explained(model(tested[0]), tested[1]), bar=0.5)


def _series(draw: Draw, length: int) -> Tensor:
    """Return standardised series [8, length] of two seasons and autoregressive noise."""
    times = torch.arange(length, dtype=torch.float32)
    periods = (draw.between(6, 10), draw.between(15, 24))
    phase, share = 2 * math.pi * torch.rand(2, 8, 1), 0.5 + torch.rand(2, 8, 1)
    seasons = torch.tensor(periods)[:, None, None]
    waves = (share * (2 * math.pi * times / seasons + phase).sin()).sum(0)
    noise = draw.between(0.1, 0.35) * torch.randn(8, length)
    for place in range(1, length):
        noise[:, place] += 0.6 * noise[:, place - 1]
    series = waves + noise
    return (series - series.mean(1, keepdim=True)) / series.std(1, keepdim=True)


FAMILY = Family(
    _train,
    (
        *("target_leak", "misaligned_targets", "shuffled_labels", "unnormalised_inputs"),
        *("dropout_too_high", "wrong_loss", "lr_too_low", "wrong_parameters"),
        *("scheduler_per_batch",),
    ),
    spent="2026-11-26",
)
