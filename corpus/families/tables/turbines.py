"""How much power a wind turbine gives: a smooth loss, and a rate that falls as a cosine.

After Pelletier, Masson and Tahan, "Wind turbine power curve modelling using artificial neural
network", Renewable Energy 2016; the weather is drawn.

Shape legend: N hours, F features.
"""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor, nn

from corpus import networks
from corpus.data.held_out import HeldOut, held_out
from corpus.draw import Draw
from corpus.epochs import fit, learning_rate, optimizer_of, plan, trained
from corpus.family import Ending, Family
from corpus.loop import explained

_SEEN = 1000


def _train(draw: Draw) -> Ending:
    rows = _hours(draw, 1500)
    width = draw.choice([32, 48])
    head = nn.Linear(width, 1)
    model = nn.Sequential(
        *(nn.Linear(6, width), nn.ReLU(), nn.Linear(width, width), nn.ReLU(), head)
    )
    if draw.has("wrong_output_activation"):
        # Power is positive, but not once it is standardised.
        model.append(nn.ReLU())
    networks.spoil(draw, model)
    length = plan(draw, _SEEN, [20, 25], (10, 14))
    rate = learning_rate(draw, 3e-3, 6e-3)
    optimizer = optimizer_of(draw, "adamw", trained(draw, model, head), rate, 1e-3)
    steps = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, length.epochs)
    criterion = nn.SmoothL1Loss()
    draw.watch.loss(criterion)

    def compute(batch: Tensor) -> Tensor:
        wanted = rows.y[batch]
        if draw.has("wrong_broadcast"):
            # [N, 1] against [N] is [N, N].
            wanted = wanted[:, 0]
        loss: Tensor = criterion(model(rows.x[batch]), wanted)
        return loss

    def evaluate() -> Mapping[str, float]:
        return {"val_r2": explained(model(rows.x_val), rows.y_val)}

    fit(draw, model, optimizer, length, compute, evaluate=evaluate, per_epoch=steps)
    model.eval()
    with torch.no_grad():
        return Ending(explained(model(rows.x_test), rows.y_test), bar=0.6)


def _hours(draw: Draw, count: int) -> HeldOut:
    """Return standardised features float32 [N, 6] and power [N, 1]."""
    speed = 3 + 9 * torch.rand(count)
    degrees = 360 * torch.rand(count)
    air, gusts, pitch = torch.randn(3, count)
    yield_ = torch.sigmoid(1.2 * (speed - 7.5)) * (1 + 0.12 * air) - 0.15 * pitch.square()
    yield_ = yield_ + 0.25 * torch.cos(torch.deg2rad(degrees - 40)) - 0.1 * gusts
    yield_ = yield_ + draw.between(0.05, 0.1) * torch.randn(count)
    y = ((yield_ - yield_.mean()) / yield_.std())[:, None]
    turn = torch.deg2rad(degrees)
    rest = [turn.sin(), turn.cos(), air, gusts, pitch]
    x = torch.stack([(speed - 7.5) / 2.6, *rest], 1)
    # One mast of two reports kilometres an hour.
    knots = torch.where(torch.arange(count) % 2 == 0, 3.6, 1.0) * speed
    mixed = torch.stack([(knots - knots.mean()) / knots.std(), *rest], 1)
    raw = torch.stack([speed, degrees, 101300 + 900 * air, 5 + gusts, pitch, 288 + 8 * air], 1)
    return held_out(
        *(draw, x, y, _SEEN),
        prepared={
            "units_mixed": (mixed, y),
            # As the files have them, with the pressure in pascals.
            "unnormalised_inputs": (raw, y),
            # Kilowatts.
            "unnormalised_targets": (x, 900 + 600 * y),
        },
    )


FAMILY = Family(
    _train,
    (
        *("units_mixed", "unnormalised_inputs", "unnormalised_targets", "shuffled_labels"),
        *("wrong_output_activation", "wrong_broadcast", "dead_relu", "missing_zero_grad"),
        *("lr_too_low", "lr_too_high"),
    ),
    spent="2026-11-28",
)
