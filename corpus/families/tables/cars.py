"""Prices of used cars: absolute errors of logarithms, a rate by plateaus, and early stopping.

After Prechelt, "Early stopping - but when?", 1998; the cars are drawn.

Shape legend: N cars, F features.
"""

from __future__ import annotations

import copy

import torch
from torch import Tensor, nn

from corpus import networks
from corpus.draw import Draw
from corpus.epochs import learning_rate, plan, trained
from corpus.family import Ending, Family
from corpus.loop import explained

_FEATURES, _SEEN, _PATIENCE = 10, 1200, 6


class PriceNet(nn.Module):
    """Standardised logarithms of prices, float32 [N, 1]."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.input = nn.Linear(_FEATURES, width)
        self.norm = nn.LayerNorm(width)
        self.hidden = nn.Linear(width, width)
        self.output = nn.Linear(width, 1)

    def forward(self, x: Tensor) -> Tensor:
        """Return the logarithms of cars float32 [N, F]."""
        x = torch.relu(self.norm(self.input(x)))
        x = x + torch.relu(self.hidden(x))
        price: Tensor = self.output(x)
        return price


def _train(draw: Draw) -> Ending:
    x, y = _cars(draw, 1800)
    seen, known = _spoilt(draw, x[:_SEEN], y[:_SEEN])
    model = PriceNet(1 if draw.has("too_small_model") else draw.choice([40, 56]))
    networks.spoil(draw, model)
    length = plan(draw, _SEEN, [24, 30], (10, 13))
    decay = draw.by_fault({"weight_decay_too_high": 10.0}, 0.0)
    rate = learning_rate(draw, 2e-3, 4e-3)
    optimizer = torch.optim.RMSprop(trained(draw, model, model.output), rate, weight_decay=decay)
    plateau = torch.optim.lr_scheduler.ReduceLROnPlateau(optimizer, factor=0.3, patience=1)
    loss = draw.watch.loss(_absolute)
    draw.watch.begin(model, optimizer)
    best, state, waited = float("inf"), copy.deepcopy(model.state_dict()), 0
    for _ in range(length.epochs):
        model.train()
        for rows in torch.randperm(_SEEN).split(length.size):
            price = model(seen[rows])
            lost = loss(price, known[rows])
            optimizer.zero_grad()
            lost.backward()
            optimizer.step()
        model.eval()
        with draw.watch.evaluating(), torch.no_grad():
            price = model(x[_SEEN:])
            reached = float((price - y[_SEEN:]).abs().mean())
        draw.watch.metric("val_mae", reached)
        plateau.step(reached)
        waited += 1
        if reached < best:
            best, state, waited = reached, copy.deepcopy(model.state_dict()), 0
        if waited > _PATIENCE:
            break
    model.load_state_dict(state)
    model.eval()
    with torch.no_grad():
        price = model(x[_SEEN:])
    return Ending(explained(price, y[_SEEN:]), bar=0.6)


def _absolute(price: Tensor, wanted: Tensor) -> Tensor:
    return torch.mean(torch.abs(price - wanted))


def _spoilt(draw: Draw, x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
    """Return cars with the drawn fault, if there is one."""
    few = torch.arange(len(x)) % 10
    return draw.by_fault(
        {
            # Euros, and not standardised logarithms.
            "unnormalised_targets": (x, (9 + 0.6 * y).exp()),
            # One table was sorted by price, the other one was not.
            "sorted_targets": (x, y.sort(0).values),
            "wrong_axis": (x.T.reshape(x.shape), y),
            "duplicated_rows": (x[few], y[few]),
            # Logarithms of what may be negative.
            "nan_inputs": (torch.where(x < -3, torch.nan, x), y),
        },
        (x, y),
    )


def _cars(draw: Draw, count: int) -> tuple[Tensor, Tensor]:
    """Return features float32 [count, F] and standardised logarithms of prices [count, 1]."""
    x = torch.randn(count, _FEATURES)
    # Makes and gears, as columns of 0 and 1.
    x[:, 6:] = (x[:, 6:] > 0.3).float()
    y = -0.9 * x[:, 0] + 0.7 * x[:, 1] - 0.5 * x[:, 2].clamp(min=0) + 0.8 * x[:, 6] * x[:, 1]
    y = y + 0.9 * x[:, 7] - 0.6 * x[:, 8] + 0.4 * x[:, 0] * x[:, 3]
    y = y + draw.between(0.15, 0.3) * torch.randn(count)
    return x, ((y - y.mean()) / y.std())[:, None]


FAMILY = Family(
    _train,
    (
        *("unnormalised_targets", "sorted_targets", "wrong_axis", "duplicated_rows"),
        *("nan_inputs", "too_small_model"),
        *("zero_init", "lr_too_high", "weight_decay_too_high", "lr_too_low"),
    ),
    spent="2026-11-28",
)
