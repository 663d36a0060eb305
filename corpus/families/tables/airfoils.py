"""How loud an airfoil is: batch norm, absolute errors, and a rate that falls on plateaus.

After Brooks, Pope and Marcolini, "Airfoil self-noise and prediction", NASA 1989; the measurements
are drawn.

Shape legend: N measurements, F features.
"""

from __future__ import annotations

import torch
from torch import nn

from corpus.data.held_out import HeldOut, held_out
from corpus.draw import Draw
from corpus.epochs import learning_rate, optimizer_of, plan, trained
from corpus.family import Ending, Family
from corpus.loop import explained

_FEATURES, _SEEN = 5, 1000


def _block(draw: Draw, inputs: int, outputs: int) -> list[nn.Module]:
    momentum = draw.by_fault({"bn_momentum": 1e-5}, 0.1)
    layers: list[nn.Module] = [
        nn.Linear(inputs, outputs),
        nn.BatchNorm1d(outputs, momentum=momentum),
    ]
    return layers if draw.has("missing_activation") else [*layers, nn.SiLU()]


def _train(draw: Draw) -> Ending:
    rows = _measured(draw, 1500)
    width = draw.by_fault({"too_small_model": 1}, draw.choice([32, 48]))
    head = nn.Linear(width, 1)
    model = nn.Sequential(*_block(draw, _FEATURES, width), *_block(draw, width, width), head)
    length = plan(draw, _SEEN, [25, 40], (12, 15))
    rate = learning_rate(draw, 4e-3, 8e-3)
    optimizer = optimizer_of(draw, "adamw", trained(draw, model, head), rate, 1e-3)
    scheduler = torch.optim.lr_scheduler.ReduceLROnPlateau(optimizer, patience=3, factor=0.5)
    criterion = nn.L1Loss()
    draw.watch.loss(criterion)
    draw.watch.begin(model, optimizer)
    for _ in range(length.epochs):
        model.train()
        for batch in torch.randperm(_SEEN).split(length.size):
            found, wanted = model(rows.x[batch]), rows.y[batch]
            if draw.has("wrong_broadcast"):
                found = found.squeeze(1)
            loss = criterion(found, wanted)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        model.eval()
        with draw.watch.evaluating(), torch.no_grad():
            error = float(criterion(model(rows.x_val), rows.y_val))
            draw.watch.metric("val_mae", error)
        scheduler.step(error)
    with torch.no_grad():
        return Ending(explained(model(rows.x_test), rows.y_test), bar=0.6)


def _measured(draw: Draw, count: int) -> HeldOut:
    """Return standardised features float32 [count, F] and loudness [count, 1]."""
    log = 2.3 + 2 * torch.rand(count)
    angle, chord, speed, thick = 22 * torch.rand(count), *torch.rand(3, count)
    peak = 3.6 - 0.02 * angle - 0.5 * chord
    loud = 126 - 16 * (log - peak).square() + 8 * speed - 5 * thick * (angle / 11)
    loud = loud + draw.between(0.5, 1.2) * torch.randn(count)
    raw = torch.stack([10**log, angle, 0.05 + 0.25 * chord, 30 + 40 * speed, thick / 20], 1)
    tame = torch.stack([log, angle, chord, speed, thick], 1)
    x = (tame - tame.mean(0)) / tame.std(0)
    y = ((loud - loud.mean()) / loud.std())[:, None]
    return held_out(
        *(draw, x, y, _SEEN),
        prepared={
            "unnormalised_targets": (x, loud[:, None]),
            # `reshape` in place of a transposition.
            "wrong_axis": (x.T.reshape(x.shape), y),
            "unnormalised_inputs": (raw, y),
        },
    )


FAMILY = Family(
    _train,
    (
        *("unnormalised_targets", "wrong_axis", "shuffled_labels", "wrong_broadcast"),
        *("missing_activation", "too_small_model", "bn_momentum", "adam_epsilon"),
        *("lr_too_low", "lr_too_high"),
    ),
    spent="2026-11-28",
)
