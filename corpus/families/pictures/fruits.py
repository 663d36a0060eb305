"""Which fruit a colour picture shows: blocks of convolutions as VGG has them, and a one-cycle rate.

After Simonyan and Zisserman, "Very deep convolutional networks for large-scale image recognition",
ICLR 2015; the pictures are drawn.

Shape legend: N pictures of 16 x 16 pixels and 3 colours, C kinds.
"""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor, nn

from corpus.data.held_out import HeldOut, held_out
from corpus.draw import Draw
from corpus.epochs import fit, learning_rate, optimizer_of, plan, trained
from corpus.family import Ending, Family
from corpus.loop import accuracy, gained
from corpus.losses import class_loss
from corpus.networks import spoil

_SIDE, _KINDS, _SEEN = 16, 6, 720


def _block(inputs: int, outputs: int) -> nn.Sequential:
    return nn.Sequential(
        *(nn.Conv2d(inputs, outputs, 3, padding=1), nn.BatchNorm2d(outputs), nn.ReLU()),
        *(nn.Conv2d(outputs, outputs, 3, padding=1), nn.BatchNorm2d(outputs), nn.ReLU()),
        nn.MaxPool2d(2),
    )


def _train(draw: Draw) -> Ending:
    rows = _pictures(draw, 1080)
    width = draw.choice([8, 10])
    dropout = draw.by_fault({"dropout_too_high": 0.98}, 0.2)
    head = nn.Linear(8 * width, _KINDS)
    model = nn.Sequential(
        *(_block(3, width), _block(width, 2 * width), nn.AdaptiveAvgPool2d(2), nn.Flatten()),
        *(nn.Dropout(dropout), head),
    )
    spoil(draw, model)
    length = plan(draw, _SEEN, [24, 30], (5, 7))
    loss_fn = class_loss(draw)
    rate = learning_rate(draw, 3e-3, 6e-3)
    optimizer = optimizer_of(draw, "adamw", trained(draw, model, head), rate, 0.01)
    cycle = torch.optim.lr_scheduler.OneCycleLR(optimizer, rate, total_steps=length.steps)

    def compute(picked: Tensor) -> Tensor:
        images = rows.x[picked]
        if draw.has("ruinous_augmentation"):
            # A jitter of the colours that is meant for values of 0 to 255.
            images = images + 20 * torch.randn(len(images), 3, _SIDE, _SIDE)
        elif torch.rand(()) < 0.5:
            images = images.flip(3)
        return loss_fn(model(images), rows.y[picked])

    def evaluate() -> Mapping[str, float]:
        return {"val_acc": accuracy(model(rows.x_val), rows.y_val)}

    fit(draw, model, optimizer, length, compute, evaluate=evaluate, per_batch=cycle)
    model.eval()
    with torch.no_grad():
        return Ending(gained(accuracy(model(rows.x_test), rows.y_test), 1 / _KINDS), bar=0.6)


def _pictures(draw: Draw, count: int) -> HeldOut:
    """Return standardised pictures float32 [count, 3, 16, 16] and kinds int64 [count]."""
    y = torch.randint(_KINDS, (count,))
    place = torch.arange(_SIDE) - (_SIDE - 1) / 2
    across = place + 2 * torch.rand(count, 1, 1) - 1
    down = place[:, None] + 2 * torch.rand(count, 1, 1) - 1
    long = torch.tensor([1.0, 1.0, 1.9, 1.4, 1.0, 1.9])[y][:, None, None]
    radius = 3.5 + torch.rand(count, 1, 1)
    fruit = ((across / long).square() + down.square() < radius.square()).float()
    colour = torch.tensor(
        [[1.0, 0, 0], [1, 0.5, 0], [1, 1, 0], [0, 1, 0], [0.6, 0.8, 0], [0.3, 0.8, 0.2]]
    )[y] + 0.15 * torch.randn(count, 3)
    x = fruit[:, None] * colour[:, :, None, None] + 0.4 * torch.rand(count, 3, 1, 1)
    x = x + draw.between(0.15, 0.25) * torch.randn(x.shape)
    x = (x - x.mean((0, 2, 3), keepdim=True)) / x.std((0, 2, 3), keepdim=True)
    return held_out(
        *(draw, x, y, _SEEN),
        # Height, width and colour were taken for colour, height and width, of all pictures at once.
        prepared={"wrong_axis": (x.permute(1, 2, 3, 0).reshape(x.shape), y)},
        # The names of the folders were not found.
        training={"single_label": (x, torch.zeros_like(y))},
    )


FAMILY = Family(
    _train,
    (
        *("wrong_axis", "shuffled_labels", "single_label", "ruinous_augmentation", "wrong_loss"),
        *("dropout_too_high", "wrong_parameters", "lr_too_low", "lr_too_high"),
    ),
    spent="2026-11-28",
)
