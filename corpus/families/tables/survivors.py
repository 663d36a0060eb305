"""Who survives a shipwreck: ages that are missing, categories, and one probability.

After the course of Kaggle, "Titanic: machine learning from disaster", 2012; the passengers are
drawn.

Shape legend: N passengers, F features.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F  # noqa: N812 (the usual name)
from torch import Tensor, nn

from corpus import networks
from corpus.data.held_out import HeldOut, held_out
from corpus.draw import Draw
from corpus.epochs import learning_rate, plan, trained
from corpus.family import Ending, Family
from corpus.loop import gained

_FEATURES, _SEEN = 9, 640


def _train(draw: Draw) -> Ending:
    rows = _passengers(draw, 890)
    width = draw.choice([24, 32])
    # One number of a softmax is always 1.
    last = nn.Softmax(dim=1) if draw.has("one_unit_softmax") else nn.Sigmoid()
    dropout = draw.by_fault({"dropout_too_high": 0.98}, 0.2)
    head = nn.Linear(width, 1)
    model = nn.Sequential(
        *(nn.Linear(_FEATURES, width), nn.ReLU(), nn.Dropout(dropout)),
        *(nn.Linear(width, width), nn.ReLU(), nn.Dropout(dropout), head, last),
    )
    networks.spoil(draw, model)
    length = plan(draw, _SEEN, [16, 20], (8, 11))
    rate = learning_rate(draw, 2e-3, 4e-3)
    optimizer = torch.optim.RMSprop(trained(draw, model, head), lr=rate)
    # A loss of several classes, of which there is one.
    several = draw.has("wrong_loss")
    loss_fn = draw.watch.loss(F.cross_entropy if several else F.binary_cross_entropy)
    draw.watch.begin(model, optimizer)
    for _ in range(length.epochs):
        model.train()
        for start in range(0, len(rows.x), length.size):
            passengers = rows.x[start : start + length.size]
            optimizer.zero_grad()
            loss = loss_fn(model(passengers), rows.y[start : start + length.size])
            loss.backward()
            optimizer.step()
        model.eval()
        with draw.watch.evaluating(), torch.no_grad():
            found = model(rows.x_val)
            draw.watch.metric(
                "val_acc", float(((found > 0.5) == (rows.y_val > 0.5)).float().mean())
            )
    with torch.no_grad():
        return Ending(gained(_balanced(model(rows.x_test), rows.y_test), 1 / 2), bar=0.4)


def _balanced(found: Tensor, y: Tensor) -> float:
    """Return the mean of the shares of the dead and of the survivors that are right."""
    right = ((found > 0.5) == (y > 0.5)).double()
    return float((right[y > 0.5].mean() + right[y < 0.5].mean()) / 2)


def _passengers(draw: Draw, count: int) -> HeldOut:
    """Return features float32 [count, F], and 1 for who survives [count, 1]."""
    rank, port = torch.randint(3, (2, count))
    woman = (torch.rand(count) < 0.4).float()
    age = (30 + 14 * torch.randn(count)).clamp(1, 80)
    family = torch.poisson(torch.full((count,), 0.9))
    fare = torch.exp(4.4 - 0.9 * rank + 0.5 * torch.randn(count))
    score = 3.6 * (woman - 0.4) - 1.1 * (rank - 1) - 0.06 * (age - 30)
    score = score + 1.5 * (age < 12) - 0.5 * (family > 3)
    y = (score + draw.between(0.4, 0.8) * torch.randn(count) > 0).float()[:, None]
    codes = torch.cat([F.one_hot(rank, 3), F.one_hot(port, 3)[:, 1:]], 1).float()
    known = torch.where(torch.rand(count) < 0.2, torch.nan, age)
    filled = known.nan_to_num(float(known.nanmean()))
    years = (filled - filled.mean()) / filled.std()
    ticket = 1e5 + 3e5 * torch.rand(count)
    x = torch.stack([woman, years, family / 2, (fare.log() - 3.3)], 1)
    raw = torch.stack([woman, filled, ticket, fare], 1)
    return held_out(
        *(draw, torch.cat([x, codes], 1), y, _SEEN),
        prepared={
            # The number of the ticket is among the columns.
            "unnormalised_inputs": (torch.cat([raw, codes], 1), y),
        },
    )


FAMILY = Family(
    _train,
    (
        *("unnormalised_inputs", "shuffled_labels", "one_unit_softmax", "wrong_loss"),
        *(
            "dropout_too_high",
            "frozen_layers",
            "large_init",
            "dead_relu",
            "lr_too_low",
            "lr_too_high",
        ),
    ),
    spent="2026-11-28",
)
