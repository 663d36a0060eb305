"""How far to turn the wheel, from what a car's camera sees: convolutions, and one number.

After Bojarski et al., "End to end learning for self-driving cars", 2016; the roads are drawn.

Shape legend: N pictures of 12 x 20 pixels.
"""

from __future__ import annotations

import torch
from torch import nn

from corpus.data.held_out import HeldOut, held_out
from corpus.draw import Draw
from corpus.epochs import learning_rate, optimizer_of, plan, trained
from corpus.family import Ending, Family
from corpus.loop import explained
from corpus.networks import spoil

_HIGH, _WIDE, _SEEN = 12, 20, 800


def _train(draw: Draw) -> Ending:
    rows = _roads(draw, 1200)
    width = draw.choice([8, 12])
    head = nn.Linear(32, 1)
    model = nn.Sequential(
        *(nn.Conv2d(1, width, 5, 2, padding=2), nn.ELU()),
        *(nn.Conv2d(width, 2 * width, 3, 2, padding=1), nn.ELU()),
        *(nn.Flatten(), nn.Linear(30 * width, 32), nn.ELU(), head),
    )
    if draw.has("wrong_output_activation"):
        # Half of the angles are below zero.
        model.append(nn.Sigmoid())
    spoil(draw, model)
    length = plan(draw, _SEEN, [20, 32], (8, 10))
    rate = learning_rate(draw, 2e-3, 4e-3)
    optimizer = optimizer_of(draw, "adam", trained(draw, model, head), rate)
    mse = nn.MSELoss()
    draw.watch.loss(mse)
    draw.watch.begin(model, optimizer)
    for epoch in range(length.epochs):
        model.train()
        for batch in torch.randperm(_SEEN).split(length.size):
            images, angles = rows.x[batch], rows.y[batch]
            flipped = torch.rand(len(batch)) < 0.5
            images = torch.where(flipped[:, None, None, None], images.flip(3), images)
            if not draw.has("augmented_without_targets"):
                angles = torch.where(flipped[:, None], -angles, angles)
            found = model(images)
            loss = mse(found, angles[:, 0] if draw.has("wrong_broadcast") else angles)
            optimizer.zero_grad()
            (-loss if draw.has("wrong_sign") else loss).backward()
            optimizer.step()
        if epoch % 3 == 2:
            model.eval()
            with draw.watch.evaluating(), torch.no_grad():
                draw.watch.metric("val_mse", float(mse(model(rows.x_val), rows.y_val)))
    model.eval()
    with torch.no_grad():
        return Ending(explained(model(rows.x_test), rows.y_test), bar=0.6)


def _roads(draw: Draw, count: int) -> HeldOut:
    """Return pictures float32 [count, 1, 12, 20] and angles [count, 1]."""
    bend, place = torch.randn(2, count, 1, 1)
    far = torch.linspace(1, 0, _HIGH)[:, None]
    centre = (_WIDE - 1) / 2 + 4 * bend * far.square() + 2 * place * (1 - far)
    wide = 1 + 4 * (1 - far)
    across = torch.arange(_WIDE).float()
    road = ((across - centre).abs() < wide).float()
    light = 0.3 * torch.randn(count, 1, 1)
    x = road + light + draw.between(0.25, 0.4) * torch.randn(count, _HIGH, _WIDE)
    x = ((x - x.mean()) / x.std())[:, None]
    angle = 0.7 * bend[:, :, 0] + 0.4 * place[:, :, 0]
    y = angle + 0.1 * torch.randn(count, 1)
    return held_out(draw, x, y, _SEEN)


FAMILY = Family(
    _train,
    (
        *("augmented_without_targets", "misaligned_targets", "nan_inputs"),
        *("wrong_output_activation", "wrong_broadcast", "wrong_sign", "zero_init", "large_init"),
        *("wrong_parameters", "lr_too_low", "lr_too_high"),
    ),
    spent="2026-11-28",
)
