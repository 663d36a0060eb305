"""The temperature of the next hours, from those before and the pressure: a recurrent network.

After Cho et al., "Learning phrase representations using RNN encoder-decoder for statistical machine
translation", EMNLP 2014, with a dense layer for all hours at once; the weather is drawn.

Shape legend: N windows, T hours that are known, H hours that come.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

import torch
import torch.nn.functional as F  # noqa: N812 (the usual name)
from torch import Tensor, nn

from corpus import networks
from corpus.draw import Draw
from corpus.epochs import fit, learning_rate, optimizer_of, plan, trained
from corpus.family import Ending, Family
from corpus.loop import explained

_KNOWN, _AHEAD, _SEEN = 24, 6, 800


class Forecast(nn.Module):
    """Temperatures [N, H] of the hours that come."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.memory = nn.GRU(2, width, batch_first=True)
        self.head = nn.Linear(width, _AHEAD)

    def forward(self, x: Tensor) -> Tensor:
        """Return temperatures of windows [N, T, 2] of temperature and pressure."""
        found: Tensor = self.head(self.memory(x)[0][:, -1])
        return found


def _train(draw: Draw) -> Ending:
    x, y = _weather(draw, 1200)
    seen, known = _spoilt(draw, x[:_SEEN], y[:_SEEN])
    held = 9 * x[_SEEN:] + 15 if draw.has("preprocessing_mismatch") else x[_SEEN:]
    model = Forecast(draw.choice([24, 32]))
    networks.blank(draw, model)
    length = plan(draw, _SEEN, [20, 25], (9, 12))
    rate = learning_rate(draw, 4e-3, 8e-3)
    optimizer = optimizer_of(draw, "adam", trained(draw, model, model.head), rate)

    def compute(rows: Tensor) -> Tensor:
        return F.mse_loss(model(seen[rows]), known[rows])

    def evaluate() -> Mapping[str, float]:
        return {"rmse": float(F.mse_loss(model(held), y[_SEEN:]).sqrt())}

    chosen = evaluate if draw.chance(0.7) else None
    fit(draw, model, optimizer, length, compute, evaluate=chosen, every=3, clip=1.0)
    model.eval()
    with torch.no_grad():
        return Ending(explained(model(held), y[_SEEN:]), bar=0.6)


def _spoilt(draw: Draw, x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
    """Return windows with the drawn fault, if there is one."""
    # The window goes on into the hours that are to be forecast.
    leak = torch.cat([x[:, _AHEAD:], torch.stack([y, torch.zeros_like(y)], 2)], 1)
    return draw.by_fault(
        {
            "target_leak": (leak, y),
            "time_reversed": (x.flip(1), y),
            # The targets begin a day later than they should.
            "misaligned_targets": (x, y.roll(5, 0)),
            # Kelvin, as the archive has it.
            "unnormalised_targets": (x, 9 * y + 288),
            "nan_inputs": (torch.where(torch.rand_like(x) < 5e-4, torch.nan, x), y),
            "unnormalised_inputs": (x * torch.tensor([9.0, 800.0]) + 1e5, y),
        },
        (x, y),
    )


def _weather(draw: Draw, count: int) -> tuple[Tensor, Tensor]:
    """Return windows float32 [count, T, 2] and the temperatures [count, H] after them."""
    time = torch.arange(_KNOWN + _AHEAD)
    begin = 24 * torch.rand(count, 1)
    pace = 0.06 * torch.randn(count, 1)
    daily = (0.6 + torch.rand(count, 1)) * torch.sin(2 * math.pi * (time + begin) / 24)
    front = torch.cumsum(0.12 * torch.randn(count, len(time)), 1)
    level = torch.randn(count, 1) * 0.5
    warm = daily + level + pace * time + front
    pressure = -8 * pace + 0.3 * torch.randn(count, len(time))
    noise = draw.between(0.05, 0.15) * torch.randn(count, len(time))
    x = torch.stack([warm + noise, pressure], 2)
    return x[:, :_KNOWN], warm[:, _KNOWN:]


FAMILY = Family(
    _train,
    (
        *("time_reversed", "target_leak", "preprocessing_mismatch"),
        *("misaligned_targets", "unnormalised_targets", "nan_inputs", "unnormalised_inputs"),
        *("lr_too_low", "zero_init"),
    ),
    spent="2026-11-27",
)
