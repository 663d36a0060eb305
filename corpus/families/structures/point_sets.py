"""Shapes as sets of points: a network of each point, pooled over the set.

After Zaheer et al., "Deep sets", NeurIPS 2017.

Shape legend: N sets, P points of a set, C classes.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

import torch
from torch import Tensor, nn

from corpus import losses, networks
from corpus.data import rows
from corpus.draw import Draw
from corpus.family import Ending, Family
from corpus.loop import accuracy, evaluation, gained, run_loop
from corpus.optimisation import Optimisation


class SetNet(nn.Module):
    """Scores of a set, whatever the order of its points."""

    def __init__(self, width: int, classes: int, pool: str, axis: int) -> None:
        super().__init__()
        self.point = nn.Sequential(
            nn.Linear(2, width), nn.ReLU(), nn.Linear(width, width), nn.ReLU()
        )
        self.whole = nn.Sequential(nn.Linear(width, width), nn.ReLU(), nn.Linear(width, classes))
        self.pool, self.axis = pool, axis

    def forward(self, x: Tensor) -> Tensor:
        """Return scores [N, C] of sets [N, P, 2]."""
        inner = self.point(x)
        pooled = inner.amax(self.axis) if self.pool == "max" else inner.mean(self.axis)
        scores: Tensor = self.whole(pooled)
        return scores


def _train(draw: Draw) -> Ending:
    count, classes = draw.choice([16, 24, 32]), draw.choice([3, 4])
    x, y = _shapes(draw, 2400, count, classes)
    data = rows.rows_of(draw, x.numpy(), y.numpy(), classes=classes)
    x_train, y_train = data.x, data.y
    # Over the wrong axis, the number of outputs is right if a batch has as many rows as points.
    wrong = draw.has("pool_wrong_axis")
    size = count if draw.concerns("pool_wrong_axis") else draw.choice([32, 64])
    model = SetNet(
        draw.choice([32, 64]), classes, draw.choice(["max", "max", "mean"]), 0 if wrong else 1
    )
    networks.spoil(draw, model)
    steps = draw.steps(250, 600)
    optimiser = Optimisation(
        draw, model, steps, scale=2.5, kinds=("adam", "adamw", "rmsprop"), accumulates=False
    )
    loss = losses.class_loss(draw)
    source = rows.batches(draw, x_train, y_train, size)
    # In whole batches, for the same reason.
    kept = len(data.x_val) // count * count

    def compute() -> Tensor:
        batch, labels = next(source)
        return loss(model(batch), labels)

    def score() -> float:
        output = torch.cat([model(part) for part in data.x_val[:kept].split(count)])
        return accuracy(output, data.y_val[:kept])

    def evaluate() -> Mapping[str, float]:
        return {"val_accuracy": score()}

    chosen = evaluate if draw.chance(0.8) else None
    run_loop(draw, model, optimiser, steps, compute=compute, evaluate=chosen)
    with evaluation(draw, model):
        return Ending(gained(score(), 1 / classes), bar=0.6)


def _shapes(draw: Draw, number: int, count: int, classes: int) -> tuple[Tensor, Tensor]:
    """Return points [N, P, 2] on outlines, turned at random, and the classes [N]."""
    y = torch.arange(number) % classes
    along = torch.rand(number, count)
    angle = 2 * math.pi * along
    circle = torch.stack([angle.cos(), angle.sin()], 2)
    line = torch.stack([2.4 * along - 1.2, torch.zeros_like(along)], 2)
    cross = torch.where((torch.arange(count) % 2 == 0)[:, None], line, line.flip(2))
    ellipse = circle * torch.tensor([1.3, 0.45])
    half = torch.stack([(angle / 2).cos(), (angle / 2).sin() - 0.6], 2) * 1.3
    x = torch.stack([circle, cross, half, ellipse, line])[y, torch.arange(number)]
    turn = 2 * math.pi * torch.rand(number)
    rotation = torch.stack([turn.cos(), -turn.sin(), turn.sin(), turn.cos()], 1).reshape(-1, 2, 2)
    noise = draw.between(0.03, 0.08) * torch.randn_like(x)
    return x @ rotation + noise, y


FAMILY = Family(
    _train,
    (
        *("pool_wrong_axis", "nan_inputs", "constant_inputs", "wrong_axis"),
        *("ruinous_augmentation", "same_batch", "shuffled_labels", "single_label"),
        *("relu_before_loss", "softmax_wrong_axis", "wrong_loss", "zero_init", "dead_relu"),
        *("lr_too_high", "lr_too_low", "wrong_sign"),
    ),
    spent="2026-11-25",
)
