"""How much of each product is asked for tomorrow, as a distribution: a recurrent network of counts.

After Salinas et al., "DeepAR: probabilistic forecasting with autoregressive recurrent networks",
International Journal of Forecasting 2020; the products are drawn.

Shape legend: N products of T days.
"""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F  # noqa: N812 (the usual name)
from torch import Tensor, nn

from corpus.data.held_out import HeldOut, held_out
from corpus.draw import Draw
from corpus.epochs import learning_rate, optimizer_of, plan, trained
from corpus.family import Ending, Family
from corpus.networks import blank

_TIME, _SEEN = 28, 360


class DeepAR(nn.Module):
    """Mean and spread of the next day's demand, after each day."""

    def __init__(self, hidden: int) -> None:
        super().__init__()
        self.lstm = nn.LSTM(3, hidden, batch_first=True)
        self.mean = nn.Linear(hidden, 1)
        self.spread = nn.Linear(hidden, 1)

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Return means and spreads, both [N, T], of days float32 [N, T, 3]."""
        state = self.lstm(x)[0]
        spread = F.softplus(self.spread(state)).squeeze(2) + 1e-2
        return self.mean(state).squeeze(2), spread


def _likelihood(mean: Tensor, spread: Tensor, y: Tensor) -> Tensor:
    deviation = (y - mean) / spread
    return (spread.log() + deviation.square() / 2 + math.log(2 * math.pi) / 2).mean()


def _spread_reversed(mean: Tensor, spread: Tensor, y: Tensor) -> Tensor:
    # The logarithm has the wrong sign: the spread may grow without end.
    deviation = (y - mean) / spread
    return (-spread.log() + deviation.square() / 2 + math.log(2 * math.pi) / 2).mean()


def _train(draw: Draw) -> Ending:
    rows = _products(draw, 520)
    model = DeepAR(draw.choice([24, 32]))
    blank(draw, model)
    if draw.has("exploding_rnn"):
        for name, one in model.lstm.named_parameters():
            if name.startswith("weight"):
                nn.init.normal_(one, 0, 30)
    length = plan(draw, _SEEN, [12, 15], (9, 12))
    rate = learning_rate(draw, 6e-3, 1.2e-2)
    heads = nn.ModuleList([model.mean, model.spread])
    optimizer = optimizer_of(draw, "adam", trained(draw, model, heads), rate)
    loss_fn = draw.watch.loss(_spread_reversed if draw.has("term_wrong_sign") else _likelihood)
    draw.watch.begin(model, optimizer)
    for _ in range(length.epochs):
        model.train()
        for picked in torch.randperm(_SEEN).split(length.size)[: length.batches]:
            optimizer.zero_grad()
            mean, spread = model(rows.x[picked])
            loss = loss_fn(mean, spread, rows.y[picked])
            loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), 10.0)
            optimizer.step()
        model.eval()
        with draw.watch.evaluating(), torch.no_grad():
            mean, spread = model(rows.x_val)
            draw.watch.metric("val_nll", float(_likelihood(mean, spread, rows.y_val)))
            draw.watch.metric("nd", float((mean - rows.y_val).abs().mean()))
    with torch.no_grad():
        mean = model(rows.x_test)[0]
    left = (mean - rows.y_test).square().sum() / (rows.y_test - rows.y_test.mean()).square().sum()
    return Ending(float(1 - left), bar=0.5)


def _products(draw: Draw, count: int) -> HeldOut:
    """Return demand, and the weekday float32 [count, T, 3], and the next demand [count, T]."""
    day = torch.arange(_TIME + 1) + torch.randint(7, (count, 1))
    week = torch.tensor([0.6, 0.7, 0.9, 1, 1.3, 1.9, 0.4])[day % 7]
    level = (0.8 * torch.randn(count, 1)).exp()
    trend = (0.1 * torch.randn(count, _TIME + 1)).cumsum(1).exp()
    sold = level * week * trend * (draw.between(0.1, 0.2) * torch.randn(week.shape)).exp()
    sold = sold.log1p()
    sold = (sold - sold.mean()) / sold.std()
    angle = 2 * math.pi * day / 7
    x = torch.stack([sold, angle.sin(), angle.cos()], 2)[:, :-1]
    y = sold[:, 1:]
    # Pieces, where some products are sold by the thousand.
    raw = x * torch.tensor([20000.0, 1, 1]) + torch.tensor([15000.0, 0, 0])
    return held_out(
        *(draw, x, y, _SEEN),
        prepared={
            "unnormalised_inputs": (raw, y),
            "unnormalised_targets": (x, 20000 * y + 15000),
            # Products and days changed places when the table was reshaped.
            "wrong_axis": (x.transpose(0, 1).reshape(x.shape), y),
        },
    )


FAMILY = Family(
    _train,
    (
        *("unnormalised_inputs", "unnormalised_targets", "misaligned_targets", "wrong_axis"),
        *("term_wrong_sign", "exploding_rnn", "wrong_parameters", "lr_too_low", "lr_too_high"),
    ),
)
