"""Clothes by a vision transformer: patches, a token that sums up, and attention.

After Dosovitskiy et al., "An image is worth 16x16 words", ICLR 2021, with the pictures of Xiao,
Rasul and Vollgraf, "Fashion-MNIST", 2017.

Shape legend: N pictures of 14 x 14 pixels, P patches, D channels.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

import torch
from torch import Tensor, nn

from corpus.data.fashion import clothes
from corpus.data.held_out import HeldOut, held_out
from corpus.draw import Draw
from corpus.epochs import fit, learning_rate, optimizer_of, plan, trained
from corpus.family import Ending, Family
from corpus.loop import accuracy, gained
from corpus.networks import blank

_SEEN, _KINDS, _PATCHES, _PIXELS = 1300, 10, 4, 49


class VisionTransformer(nn.Module):
    """Scores of kinds."""

    def __init__(self, draw: Draw, size: int) -> None:
        super().__init__()
        dropout = draw.by_fault({"dropout_too_high": 0.9}, 0.0)
        self.to_patch = nn.Unfold(7, stride=7)
        self.embed = nn.Linear(_PIXELS, size)
        self.cls_token = nn.Parameter(0.02 * torch.randn(1, 1, size))
        self.positions = nn.Parameter(0.02 * torch.randn(1, 1 + _PATCHES, size))
        layer = nn.TransformerEncoderLayer(
            *(size, 4, 2 * size, dropout, "gelu"), batch_first=True, norm_first=True
        )
        self.encoder = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
        self.norm, self.head = nn.LayerNorm(size), nn.Linear(size, _KINDS)

    def forward(self, images: Tensor) -> Tensor:
        """Return scores [N, 10] of pictures float32 [N, 1, 14, 14]."""
        x = self.embed(self.to_patch(images).transpose(1, 2))
        x = torch.cat([self.cls_token.expand(len(x), -1, -1), x], 1) + self.positions
        scores: Tensor = self.head(self.norm(self.encoder(x)[:, 0]))
        return scores


def _train(draw: Draw) -> Ending:
    rows = _clothes(draw)
    model = VisionTransformer(draw, draw.choice([32, 40]))
    if draw.has("large_init"):
        for one in model.parameters():
            nn.init.normal_(one, std=2.0)
    blank(draw, model)
    length = plan(draw, _SEEN, [26, 32], (7, 9))
    rate = learning_rate(draw, 2e-3, 4e-3)
    optimizer = optimizer_of(draw, "adamw", trained(draw, model, model.head), rate, 0.01)
    warm = length.batches

    def factor(step: int) -> float:
        if draw.has("scheduler_to_zero"):
            # Of epochs, and not of batches.
            return max(0.0, 1 - step / length.epochs)
        if step < warm:
            return (step + 1) / warm
        return 0.5 + 0.5 * math.cos(math.pi * (step - warm) / (length.steps - warm))

    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, factor)
    criterion = nn.CrossEntropyLoss(label_smoothing=0.1)
    draw.watch.loss(criterion)

    def compute(batch: Tensor) -> Tensor:
        loss: Tensor = criterion(model(rows.x[batch]), rows.y[batch])
        return loss

    def evaluate() -> Mapping[str, float]:
        scores = model(rows.x_val)
        return {
            "val_loss": float(criterion(scores, rows.y_val)),
            "acc": accuracy(scores, rows.y_val),
        }

    chosen = evaluate if draw.chance(0.8) else None
    fit(draw, model, optimizer, length, compute, evaluate=chosen, clip=1.0, per_batch=schedule)
    model.eval()
    with torch.no_grad():
        return Ending(gained(accuracy(model(rows.x_test), rows.y_test), 1 / _KINDS), bar=0.5)


def _clothes(draw: Draw) -> HeldOut:
    """Return pictures float32 [1800, 1, 14, 14] and kinds int64 [1800]."""
    order = torch.tensor(draw.numpy.permutation(5000)[:1800])
    x, y = (one[order] for one in clothes(5000))
    return held_out(draw, x, y, _SEEN)


FAMILY = Family(
    _train,
    (
        *("shuffled_labels", "dropout_too_high", "large_init", "zero_init"),
        *("scheduler_to_zero", "wrong_parameters", "weight_decay_too_high", "lr_too_low"),
        *("lr_too_high",),
    ),
    spent="2026-11-28",
)
