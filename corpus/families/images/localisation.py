"""Boxes around a bright rectangle in a noisy image, by regression.

Shape legend: N images, boxes are (centre x, centre y, width, height) as shares of the image.
"""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor, nn

from corpus import losses, networks
from corpus.data.rows import TARGET_FAULTS, batches, rows_of
from corpus.draw import Draw
from corpus.family import Ending, Family
from corpus.loop import evaluation, gained, run_loop
from corpus.optimisation import Optimisation

_SIZE = 16


def _network(draw: Draw) -> nn.Sequential:
    width = draw.choice([6, 8])
    # A fault of the mode needs a layer that depends on it.
    normalised = draw.chance(0.5) or draw.concerns("train_eval_mode")
    layers: list[nn.Module] = []
    channels = 1
    for place in range(3):
        layers.append(nn.Conv2d(channels, width << place, 3, stride=2, padding=1))
        channels = width << place
        if normalised:
            layers.append(nn.BatchNorm2d(channels))
        layers.append(nn.ReLU())
    return nn.Sequential(
        *layers, nn.Flatten(), nn.Linear(4 * channels, 48), nn.ReLU(), nn.Linear(48, 4)
    )


def _train(draw: Draw) -> Ending:
    x, y = _scenes(draw, 2400)
    data = rows_of(draw, x.numpy(), y.numpy())
    wanted = data.y
    if draw.has("swapped_coordinates"):
        wanted = wanted[:, [1, 0, 3, 2]]
    model = _network(draw)
    networks.spoil(draw, model)
    steps = draw.steps(250, 500)
    optimiser = Optimisation(
        draw, model, steps, scale=2.0, kinds=("adam", "adamw"), accumulates=False
    )
    loss = losses.value_loss(draw)
    flips = draw.has("augmented_without_targets")
    source = batches(draw, data.x, wanted, draw.choice([32, 64]), _flipped if flips else None)

    def compute() -> Tensor:
        batch, boxes = next(source)
        return loss(model(batch), boxes)

    def evaluate() -> Mapping[str, float]:
        return {"iou": _overlap(model(data.x_val), data.y_val)}

    chosen = evaluate if draw.chance(0.7) else None
    run_loop(draw, model, optimiser, steps, compute=compute, evaluate=chosen)
    with evaluation(draw, model):
        reached = _overlap(model(data.x_val), data.y_val)
    trivial = _overlap(y.mean(0).expand_as(data.y_val), data.y_val)
    return Ending(gained(reached, trivial), bar=0.3, margin=0.15)


def _scenes(draw: Draw, count: int) -> tuple[Tensor, Tensor]:
    """Return images [N, 1, 16, 16] and boxes [N, 4]."""
    size = 0.25 + 0.35 * torch.rand(count, 2)
    centre = size / 2 + (1 - size) * torch.rand(count, 2)
    place = (torch.arange(_SIZE) + 0.5) / _SIZE
    across = (place - centre[:, :1]).abs() < size[:, :1] / 2
    down = (place - centre[:, 1:]).abs() < size[:, 1:] / 2
    bright = (down[:, :, None] & across[:, None, :]).float()
    noise = draw.between(0.1, 0.4) * torch.randn_like(bright)
    return (2 * bright - 0.4 + noise)[:, None], torch.cat([centre, size], 1)


def _flipped(batch: Tensor) -> Tensor:
    """Return images, turned around at random; the boxes stay where they were."""
    sides = (torch.rand(len(batch), 2) < 0.5)[:, :, None, None, None]
    batch = torch.where(sides[:, 0], batch.flip(3), batch)
    return torch.where(sides[:, 1], batch.flip(2), batch)


def _overlap(boxes: Tensor, wanted: Tensor) -> float:
    """Return the mean intersection over union of boxes [N, 4]; empty boxes have none."""
    (low, high), (low_2, high_2) = (
        (one[:, :2] - one[:, 2:].clamp(min=0) / 2, one[:, :2] + one[:, 2:].clamp(min=0) / 2)
        for one in (boxes.double(), wanted.double())
    )
    shared = (torch.minimum(high, high_2) - torch.maximum(low, low_2)).clamp(min=0).prod(1)
    union = (high - low).prod(1) + (high_2 - low_2).prod(1) - shared
    return float((shared / union).nan_to_num(0.0).mean())


FAMILY = Family(
    _train,
    (
        *("swapped_coordinates", "augmented_without_targets", *TARGET_FAULTS, "train_eval_mode"),
        *("unnormalised_inputs", "wrong_axis", "ruinous_augmentation", "nan_inputs", "wrong_loss"),
        *("lr_too_high", "lr_too_low", "dead_relu", "zero_init", "detached_graph"),
        *("weight_decay_too_high", "wrong_sign"),
    ),
    spent="2026-11-25",
)
