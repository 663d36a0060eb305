"""Where eyes, nose and mouth are: convolutions, ten coordinates, and a loss for small errors.

After Feng et al., "Wing loss for robust facial landmark localisation with convolutional neural
networks", CVPR 2018; the faces are drawn.

Shape legend: N pictures of 16 x 16 pixels.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn

from corpus.data.held_out import HeldOut, held_out
from corpus.draw import Draw
from corpus.epochs import learning_rate, optimizer_of, plan, trained
from corpus.family import Ending, Family
from corpus.loop import explained
from corpus.networks import spoil

_SIDE, _POINTS, _SEEN = 16, 5, 500


def _wing(found: Tensor, true: Tensor, width: float = 0.5, curvature: float = 0.1) -> Tensor:
    error = (found - true).abs()
    shift = width - width * math.log(1 + width / curvature)
    near = width * (1 + error / curvature).log()
    return torch.where(error < width, near, error - shift).mean()


def _train(draw: Draw) -> Ending:
    rows = _faces(draw, 750)
    channels = draw.choice([8, 12])
    width = 1 if draw.has("too_small_model") else 48
    head = nn.Linear(width, 2 * _POINTS)
    model = nn.Sequential(
        *(nn.Conv2d(1, channels, 3, stride=2, padding=1), nn.ELU()),
        *(nn.Conv2d(channels, 2 * channels, 3, stride=2), nn.ELU()),
        *(nn.Flatten(), nn.Linear(2 * channels * 9, width), nn.ELU()),
        head,
    )
    spoil(draw, model)
    if draw.has("wrong_output_activation"):
        # Standardised coordinates are below zero, too.
        model.append(nn.Sigmoid())
    length = plan(draw, _SEEN, [10, 16], (10, 13))
    rate = learning_rate(draw, 2e-3, 4e-3)
    optimizer = optimizer_of(draw, "adamw", trained(draw, model, head), rate, 1e-3)
    scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, length.epochs)
    loss_fn = draw.watch.loss(_wing)
    draw.watch.begin(model, optimizer)
    for _ in range(length.epochs):
        model.train()
        for picked in torch.randperm(_SEEN).split(length.size)[: length.batches]:
            optimizer.zero_grad()
            loss = loss_fn(model(rows.x[picked]), rows.y[picked])
            (-loss if draw.has("wrong_sign") else loss).backward()
            optimizer.step()
        scheduler.step()
        with draw.watch.evaluating(), torch.no_grad():
            away = (model(rows.x_val) - rows.y_val).unflatten(1, (_POINTS, 2)).norm(dim=2)
            draw.watch.metric("nme", float(away.mean()))
    with torch.no_grad():
        return Ending(explained(model(rows.x_test), rows.y_test), bar=0.6)


def _faces(draw: Draw, count: int) -> HeldOut:
    """Return standardised pictures float32 [count, 1, 16, 16] and coordinates [count, 10]."""
    centre = 7.5 + 3 * (torch.rand(count, 1, 2) - 0.5)
    size = 3 + 1.5 * torch.rand(count, 1, 1)
    lean = 0.6 * (torch.rand(count) - 0.5)
    shape = torch.tensor([[-1.0, -0.8], [1, -0.8], [0, 0.1], [-0.7, 1], [0.7, 1]])
    turn = torch.stack([lean.cos(), -lean.sin(), lean.sin(), lean.cos()], 1).reshape(-1, 2, 2)
    points = centre + size * (shape + 0.1 * torch.randn(count, _POINTS, 2)) @ turn
    place = torch.arange(_SIDE)
    across = (place - points[:, :, :1])[:, :, None].square()
    down = (place - points[:, :, 1:])[:, :, :, None].square()
    dark = torch.tensor([1.0, 1, 0.6, 0.8, 0.8])[:, None, None]
    x = (dark * (-(across + down) / 2).exp()).sum(1) + 0.3 * torch.randn(count, 1, 1)
    x = (x + draw.between(0.1, 0.2) * torch.randn(x.shape))[:, None]
    x, y = (x - x.mean()) / x.std(), points.flatten(1)
    y = (y - y.mean(0)) / y.std(0)
    # The pictures are mirrored, the coordinates are not.
    mirrored = torch.rand(count, 1, 1, 1) < 0.5
    return held_out(
        *(draw, x, y, _SEEN),
        prepared={
            "unnormalised_inputs": (6000 * x + 12000, y),
            "unnormalised_targets": (x, 4000 * y + 7500),
        },
        training={"augmented_without_targets": (torch.where(mirrored, x.flip(3), x), y)},
    )


FAMILY = Family(
    _train,
    (
        *("unnormalised_targets", "misaligned_targets", "unnormalised_inputs"),
        *("wrong_output_activation", "too_small_model", "wrong_sign", "zero_init"),
        *("augmented_without_targets", "lr_too_low", "lr_too_high"),
    ),
)
