"""Whether a coupon is used: a factorisation machine of the columns, and a loss by hand.

After Rendle, "Factorization machines", ICDM 2010; the coupons are drawn.

Shape legend: N coupons, K columns of C categories, D factors.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from corpus.data.held_out import HeldOut, held_out
from corpus.draw import Draw
from corpus.epochs import learning_rate, plan
from corpus.family import Ending, Family
from corpus.loop import gained

_COLUMNS, _CATEGORIES, _FACTORS, _SEEN = 6, 8, 6, 1500


class FactorizationMachine(nn.Module):
    """Probability that a coupon is used."""

    def __init__(self, spread: float) -> None:
        super().__init__()
        self.bias = nn.Parameter(torch.zeros(1))
        self.linear = nn.Embedding(_COLUMNS * _CATEGORIES, 1)
        self.factors = nn.Embedding(_COLUMNS * _CATEGORIES, _FACTORS)
        nn.init.normal_(self.linear.weight, 0, 0.01)
        nn.init.normal_(self.factors.weight, 0, spread)
        self.register_buffer("offsets", _CATEGORIES * torch.arange(_COLUMNS))

    def forward(self, x: Tensor) -> Tensor:
        """Return probabilities [N] of categories int64 [N, K]."""
        rows = x + self.get_buffer("offsets")
        v = self.factors(rows)
        pairs = (v.sum(1).square() - v.square().sum(1)).sum(1) / 2
        probability: Tensor = torch.sigmoid(self.bias + self.linear(rows).sum((1, 2)) + pairs)
        return probability


def _log_loss(p: Tensor, y: Tensor) -> Tensor:
    p = p.clamp(1e-6, 1 - 1e-6)
    return -(y * p.log() + (1 - y) * (1 - p).log()).mean()


def _log_loss_unclamped(p: Tensor, y: Tensor) -> Tensor:
    return -(y * p.log() + (1 - y) * (1 - p).log()).mean()


def _train(draw: Draw) -> Ending:
    rows = _coupons(draw, 2200)
    # Without factors, nothing tells them how to change.
    spread = draw.by_fault({"zero_init": 0.0, "large_init": 10.0, "nan_loss": 4.0}, 0.1)
    model = FactorizationMachine(spread)
    length = plan(draw, len(rows.x), [25, 30], (11, 14))
    rate = learning_rate(draw, 1.5e-2, 3e-2)
    decay = draw.by_fault({"weight_decay_too_high": 1.0}, 1e-5)
    optimizer = torch.optim.Adam(model.parameters(), lr=rate, weight_decay=decay)
    loss_fn = draw.watch.loss(_log_loss_unclamped if draw.has("nan_loss") else _log_loss)
    draw.watch.begin(model, optimizer)
    for epoch in range(length.epochs):
        for picked in torch.randperm(len(rows.x)).split(length.size)[: length.batches]:
            loss = loss_fn(model(rows.x[picked]), rows.y[picked])
            optimizer.zero_grad()
            (-loss if draw.has("wrong_sign") else loss).backward()
            if not draw.has("missing_step"):
                optimizer.step()
        if epoch % 2:
            with draw.watch.evaluating(), torch.no_grad():
                draw.watch.metric("logloss", float(_log_loss(model(rows.x_val), rows.y_val)))
    with torch.no_grad():
        used = rows.y_test > 0.5
        right = ((model(rows.x_test) > 0.5) == used).double()
    return Ending(gained(float((right[used].mean() + right[~used].mean()) / 2), 1 / 2), bar=0.45)


def _coupons(draw: Draw, count: int) -> HeldOut:
    """Return categories int64 [count, K], and 1 for coupons that are used [count]."""
    x = torch.randint(_CATEGORIES, (count, _COLUMNS))
    column = torch.arange(_COLUMNS)
    liked = 0.5 * torch.randn(_COLUMNS, _CATEGORIES)[column, x].sum(1)
    v = torch.randn(_COLUMNS, _CATEGORIES, 2)[column, x]
    score = liked + (v.sum(1).square() - v.square().sum(1)).sum(1) / 2
    score = score + draw.between(0.2, 0.5) * torch.randn(count)
    y = (score > score.median()).float()
    mixed = torch.stack([one[torch.randperm(count)] for one in x.unbind(1)], 1)
    return held_out(
        *(draw, x, y, _SEEN),
        prepared={
            # Each column of the table was sorted on its own.
            "wrong_order": (mixed, y),
            "colliding_ids": (x % 2, y),
        },
    )


FAMILY = Family(
    _train,
    (
        *("wrong_order", "shuffled_labels", "nan_loss", "zero_init", "large_init"),
        *("wrong_sign", "missing_step", "weight_decay_too_high", "lr_too_low", "lr_too_high"),
    ),
)
