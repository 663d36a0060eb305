"""Sales of the next days, by blocks that explain what the ones before have left.

After Oreshkin et al., "N-BEATS: neural basis expansion analysis for interpretable time series
forecasting", ICLR 2020; the shops are drawn.

Shape legend: N windows of T days, H days of a forecast.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

import torch
import torch.nn.functional as F  # noqa: N812 (the usual name)
from torch import Tensor, nn

from corpus import networks
from corpus.data.held_out import HeldOut, held_out
from corpus.draw import Draw
from corpus.epochs import fit, learning_rate, optimizer_of, plan, trained
from corpus.family import Ending, Family
from corpus.loop import explained

_TIME, _AHEAD, _SEEN = 21, 4, 1000


class Block(nn.Module):
    """What a block explains of a window [N, T], and what it foretells [N, H]."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.layers = nn.Sequential(
            nn.Linear(_TIME, width), nn.ReLU(), nn.Linear(width, width), nn.ReLU()
        )
        self.theta = nn.Linear(width, _TIME + _AHEAD)

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Return both."""
        told = self.theta(self.layers(x))
        return told[:, :_TIME], told[:, _TIME:]


class NBeats(nn.Module):
    """Forecasts [N, H] of windows float32 [N, T]."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.blocks = nn.ModuleList(Block(width) for _ in range(3))

    def forward(self, x: Tensor) -> Tensor:
        """Return the sum of what the blocks foretell."""
        forecast = torch.zeros(len(x), _AHEAD)
        for block in self.blocks:
            back, ahead = block(x)
            x, forecast = x - back, forecast + ahead
        return forecast


def _train(draw: Draw) -> Ending:
    rows = _windows(draw, 1500)
    model = NBeats(draw.choice([32, 48]))
    networks.spoil(draw, model)
    length = plan(draw, _SEEN, [25, 30], (9, 12))
    rate = learning_rate(draw, 2e-3, 4e-3)
    weights = trained(draw, model, model.blocks[-1])
    optimizer = optimizer_of(draw, "adam", weights, rate)
    steps = torch.optim.lr_scheduler.MultiStepLR(optimizer, [6, 8], 0.3)
    loss = draw.watch.loss(F.l1_loss)

    def compute(batch: Tensor) -> Tensor:
        found: Tensor = model(rows.x[batch])
        wanted = rows.y[batch]
        if draw.has("wrong_loss"):
            return (found - wanted).mean()
        return loss(found, wanted)

    def evaluate() -> Mapping[str, float]:
        return {"mae": float(F.l1_loss(model(rows.x_val), rows.y_val))}

    chosen = evaluate if draw.chance(0.8) else None
    fit(draw, model, optimizer, length, compute, evaluate=chosen, every=3, per_epoch=steps)
    model.eval()
    with torch.no_grad():
        return Ending(explained(model(rows.x_test), rows.y_test), bar=0.5)


def _windows(draw: Draw, count: int) -> HeldOut:
    """Return windows float32 [count, T] and the next days [count, H], standardised."""
    day = torch.arange(_TIME + _AHEAD) + torch.randint(7, (count, 1))
    week = torch.tensor(draw.numpy.normal(size=7), dtype=torch.float32)
    loud = 0.6 + torch.rand(count, 1)
    season = torch.sin(2 * math.pi * (day / 17 + torch.rand(count, 1)))
    trend = 0.04 * torch.randn(count, 1) * day
    sold = loud * week[day % 7] + 0.8 * season + trend
    sold = sold + draw.between(0.15, 0.3) * torch.randn(day.shape)
    sold = (sold - sold.mean()) / sold.std()
    x, y = sold[:, :_TIME].clone(), sold[:, _TIME:].clone()
    order = torch.rand(x.shape).argsort(1)
    return held_out(
        *(draw, x, y, _SEEN),
        prepared={
            # The last days of the window are those to foretell.
            "target_leak": (sold[:, _AHEAD:].clone(), y),
            "unnormalised_targets": (x, 400 + 150 * y),
            "unnormalised_inputs": (4000 + 150 * x, y),
            "time_shuffled": (x.gather(1, order), y),
        },
    )


FAMILY = Family(
    _train,
    (
        *("target_leak", "unnormalised_targets", "unnormalised_inputs", "time_shuffled"),
        *("misaligned_targets", "wrong_loss", "dead_relu", "missing_zero_grad"),
        *("adam_epsilon", "wrong_parameters", "lr_too_low", "lr_too_high"),
    ),
    spent="2026-11-28",
)
