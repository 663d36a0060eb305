"""Exclusive or of two noisy numbers: the first network of many books, with sigmoids and squares.

After Rumelhart, Hinton and Williams, "Learning internal representations by error propagation",
1986.

Shape legend: N points in the plane.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from corpus.data.held_out import HeldOut, held_out
from corpus.draw import Draw
from corpus.epochs import learning_rate, optimizer_of, plan, trained
from corpus.family import Ending, Family
from corpus.loop import gained
from corpus.networks import spoil

_SEEN = 200


def _train(draw: Draw) -> Ending:
    rows = _points(draw, 400)
    width = draw.by_fault({"too_small_model": 1}, draw.choice([8, 12]))
    hidden = nn.Identity() if draw.has("missing_activation") else nn.Tanh()
    last = nn.Linear(width, 1)
    model = nn.Sequential(nn.Linear(2, width), hidden, last, nn.Sigmoid())
    spoil(draw, model)
    # All points in every step.
    length = plan(draw, _SEEN, [_SEEN], (400, 600))
    optimizer = optimizer_of(draw, "sgd", trained(draw, model, last), learning_rate(draw, 0.3, 0.6))
    criterion = nn.MSELoss()
    draw.watch.loss(criterion)
    draw.watch.begin(model, optimizer)
    for step in range(length.epochs):
        output = model(rows.x)
        loss = criterion(output, rows.y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % 100 == 99:
            with draw.watch.evaluating(), torch.no_grad():
                draw.watch.metric("accuracy", _right(model(rows.x_val), rows.y_val))
    with torch.no_grad():
        return Ending(gained(_right(model(rows.x_test), rows.y_test), 1 / 2), bar=0.8)


def _right(output: Tensor, y: Tensor) -> float:
    return float(((output > 0.5) == (y > 0.5)).double().mean())


def _points(draw: Draw, count: int) -> HeldOut:
    """Return points float32 [count, 2] about the corners of a square, and [count, 1]."""
    bits = torch.randint(2, (count, 2)).float()
    x = 2 * bits - 1 + draw.between(0.2, 0.3) * torch.randn(count, 2)
    y = (bits[:, :1] != bits[:, 1:]).float()
    return held_out(
        *(draw, x, y, _SEEN),
        # The numbers are those of an analogue converter of 12 bits.
        prepared={"unnormalised_inputs": (2048 + 900 * x, y)},
    )


FAMILY = Family(
    _train,
    (
        *("unnormalised_inputs", "shuffled_labels", "missing_activation", "too_small_model"),
        *("zero_init", "saturation", "lr_too_low", "lr_too_high"),
    ),
    spent="2026-11-28",
)
