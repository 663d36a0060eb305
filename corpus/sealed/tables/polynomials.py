"""A curve by a polynomial of third order: one linear layer, all points in each step, summed errors.

After Johnson, "Learning PyTorch with examples", 2022.

Shape legend: N points.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn

from corpus.data.held_out import HeldOut, held_out
from corpus.draw import Draw
from corpus.epochs import learning_rate, plan
from corpus.family import Ending, Family

_SEEN = 1000


def _powers(x: Tensor) -> Tensor:
    """Return powers [N, 3] of points [N]."""
    return x[:, None] ** torch.tensor([1, 2, 3])


def _train(draw: Draw) -> Ending:
    rows = _points(draw, 1400)
    x = _powers(rows.x)
    model = nn.Sequential(nn.Linear(3, 1), nn.Flatten(0, 1))
    if draw.has("wrong_broadcast"):
        # Errors of each point to each other one.
        model = nn.Sequential(nn.Linear(3, 1))
    # All points in every step.
    length = plan(draw, _SEEN, [_SEEN], (1500, 2000))
    optimizer = torch.optim.RMSprop(model.parameters(), lr=learning_rate(draw, 2e-3, 4e-3))
    loss_fn = torch.nn.MSELoss(reduction="sum")
    draw.watch.loss(loss_fn)
    draw.watch.begin(model, optimizer)
    for t in range(length.epochs):
        y_pred = model(x)
        loss = loss_fn(y_pred, rows.y)
        optimizer.zero_grad()
        (-loss if draw.has("wrong_sign") else loss).backward()
        if not draw.has("missing_step"):
            optimizer.step()
        if t % 200 == 199:
            draw.watch.metric("sum_of_squares", loss.item())
    with torch.no_grad():
        found = model(_powers(rows.x_test)).flatten()
    left = (found - rows.y_test).square().sum() / (rows.y_test - rows.y_test.mean()).square().sum()
    return Ending(float(1 - left), bar=0.7)


def _points(draw: Draw, count: int) -> HeldOut:
    """Return points float32 [count], and values [count]."""
    x = 2 * math.pi * torch.rand(count) - math.pi
    y = x.sin() + draw.between(0.05, 0.15) * torch.randn(count)
    return held_out(
        *(draw, x, y, _SEEN),
        # Degrees.
        prepared={"unnormalised_inputs": (x.rad2deg(), y)},
    )


FAMILY = Family(
    _train,
    (
        *("unnormalised_inputs", "shuffled_labels", "misaligned_targets", "wrong_broadcast"),
        *("wrong_sign", "missing_step", "nan_inputs"),
        *("lr_too_low", "lr_too_high"),
    ),
)
