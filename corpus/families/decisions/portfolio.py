"""What to hold each day, by the ratio of gains to their spread: no labels, and a loss below zero.

After Zhang, Zohren and Roberts, "Deep learning for portfolio optimization", Journal of Financial
Data Science 2020.

Shape legend: T days, 6 things to hold, F signals.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from corpus import networks
from corpus.draw import Draw
from corpus.family import Ending, Family

_THINGS, _SIGNALS, _SEEN, _DAYS = 6, 8, 2000, 2600


class Holder(nn.Module):
    """Shares [T, 6] of what is held, by signals [T, F]; negative ones are owed."""

    def __init__(self, width: int, dropout: float) -> None:
        super().__init__()
        self.body = nn.Sequential(
            *(nn.Linear(_SIGNALS, width), nn.LeakyReLU(), nn.Dropout(dropout)),
            nn.Linear(width, _THINGS),
        )

    def forward(self, signals: Tensor) -> Tensor:
        """Return the shares."""
        shares = torch.tanh(self.body(signals))
        return shares / shares.abs().sum(1, keepdim=True).clamp(min=1e-3)


def _train(draw: Draw) -> Ending:
    signals, gains, expected = _market(draw)
    told, seen = _spoilt(draw, signals[:_SEEN], gains[:_SEEN])
    dropout = draw.choice([0.0, 0.1])
    model = Holder(draw.choice([24, 32]), dropout)
    networks.blank(draw, model)
    days, steps = draw.choice([63, 126]), draw.steps(350, 500)
    rate = draw.between(3e-3, 6e-3)
    rate *= draw.by_fault({"lr_too_low": draw.extent(1e-6, 1e-5)}, 1.0)
    decay = draw.by_fault({"weight_decay_too_high": 1 / rate}, 1e-3)
    optimizer = torch.optim.AdamW(model.parameters(), lr=rate, weight_decay=decay)
    draw.watch.begin(model, optimizer)
    for step in range(1, steps + 1):
        model.train()
        first = int(torch.randint(_SEEN - days, ()))
        span = slice(first, first + days)
        ratio = _ratio(model(told[span]), seen[span])
        optimizer.zero_grad()
        (ratio if draw.has("wrong_sign") else -ratio).backward()
        optimizer.step()
        model.eval()
        if step % 70 == 0:
            with draw.watch.evaluating(), torch.no_grad():
                held = _ratio(model(signals[_SEEN:]), gains[_SEEN:])
                draw.watch.metric("sharpe", 252**0.5 * float(held))
    with torch.no_grad():
        reached = _ratio(model(signals[_SEEN:]), gains[_SEEN:])
        best = _ratio(expected[_SEEN:], gains[_SEEN:])
    return Ending(max(-1.0, float(reached / best)), bar=0.5)


def _ratio(shares: Tensor, gains: Tensor) -> Tensor:
    """Return the mean of the gains of all days by their standard deviation."""
    daily = (shares * gains).sum(1)
    return daily.mean() / (daily.std() + 1e-6)


def _spoilt(draw: Draw, signals: Tensor, gains: Tensor) -> tuple[Tensor, Tensor]:
    """Return the days with the drawn fault, if there is one."""
    if draw.has("target_leak"):
        # Two signals are computed from the price of the evening.
        told = signals.clone()
        told[:, 6:] = 100 * gains[:, :2]
        return told, gains
    return draw.by_fault(
        {
            # The signals are those of the day before.
            "wrong_shift": (signals.roll(1, 0), gains),
            "time_shuffled": (signals, gains[torch.randperm(_SEEN)]),
            "constant_inputs": (torch.zeros_like(signals), gains),
            "unnormalised_inputs": (1e4 * signals + 1e5, gains),
            # The columns of two tables have different orders.
            "swapped_ids": (signals.flip(1), gains),
        },
        (signals, gains),
    )


def _market(draw: Draw) -> tuple[Tensor, Tensor, Tensor]:
    """Return signals [T, F], gains [T, 6], and the gains that can be expected."""
    signals = torch.randn(_DAYS, _SIGNALS)
    expected = 0.01 * torch.tanh(signals[:, :6] @ torch.randn(6, _THINGS))
    noise = draw.between(0.012, 0.018)
    return signals, expected + noise * torch.randn(_DAYS, _THINGS), expected


FAMILY = Family(
    _train,
    (
        *("target_leak", "wrong_shift", "time_shuffled", "swapped_ids", "constant_inputs"),
        *("unnormalised_inputs", "weight_decay_too_high", "lr_too_low"),
        *("wrong_sign", "zero_init"),
    ),
    spent="2026-11-27",
)
