"""A vision transformer of digits.

Settings: Dosovitskiy et al., "An image is worth 16x16 words", ICLR 2021, and small public versions:
patches of 2 x 2, a class token, learned places, norm before each part, AdamW with a rate of 1e-3,
weight decay 0.05, a linear warm-up and a cosine, a label smoothing of 0.1, gradients clipped at 1.
Two layers of 48 with four heads instead of twelve of 768.

Shape legend: N images, P patches, D width.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

import torch
import torch.nn.functional as F  # noqa: N812 (the usual name)
from torch import Tensor, nn

from corpus.data.bundled import digits
from corpus.data.rows import batches
from corpus.draw import Draw
from corpus.family import Ending, Family
from corpus.loop import accuracy, evaluation, gained, report_metrics

_STEPS, _WARM_UP, _RATE, _WIDTH = 400, 40, 2e-3, 48


class ViT(nn.Module):
    """Scores [N, 10] of images [N, 1, 8, 8]."""

    def __init__(self, dropout: float, *, batch_first: bool) -> None:
        super().__init__()
        self.patches = nn.Conv2d(1, _WIDTH, 2, stride=2)
        self.token = nn.Parameter(torch.zeros(1, 1, _WIDTH))
        self.places = nn.Parameter(0.02 * torch.randn(1, 17, _WIDTH))
        settings = {"norm_first": True, "activation": F.gelu, "batch_first": batch_first}
        self.blocks = nn.Sequential(
            *(
                nn.TransformerEncoderLayer(_WIDTH, 4, 2 * _WIDTH, dropout, **settings)  # type: ignore[arg-type]
                for _ in range(2)
            )
        )
        self.norm, self.head = nn.LayerNorm(_WIDTH), nn.Linear(_WIDTH, 10)

    def forward(self, x: Tensor) -> Tensor:
        """Classify by the class token."""
        seen = self.patches(x).flatten(2).transpose(1, 2)
        tokens = torch.cat([self.token.expand(len(x), -1, -1), seen], 1) + self.places
        scores: Tensor = self.head(self.norm(self.blocks(tokens)[:, 0]))
        return scores


def _train(draw: Draw) -> Ending:
    draw.watch.expect(_STEPS)
    images, labels = digits(8)
    images = (images - images.mean()) / images.std()
    x_val, y_val = images[1400:], labels[1400:]
    # The share that is kept is given as the share that is dropped.
    dropout = 0.9 if draw.has("dropout_too_high") else 0.1
    # Images attend to each other, and the class token to no patch.
    model = ViT(dropout, batch_first=not draw.has("wrong_axis"))
    rate = 100 * _RATE if draw.has("lr_too_high") else _RATE
    optimizer = torch.optim.AdamW(model.parameters(), lr=rate, weight_decay=0.05)
    scheduler = torch.optim.lr_scheduler.LambdaLR(optimizer, _factor)
    criterion = nn.CrossEntropyLoss(label_smoothing=0.1)
    draw.watch.loss(criterion)
    draw.watch.begin(model, optimizer)

    def measure() -> Mapping[str, float]:
        return {"acc1": 100 * float((model(x_val).argmax(1) == y_val).float().mean())}

    source = batches(draw, images[:1400], labels[:1400], 64)
    for step in range(_STEPS):
        model.train()
        data, target = next(source)
        optimizer.zero_grad()
        loss: Tensor = criterion(model(data), target)
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        scheduler.step()
        if step % 100 == 99:
            report_metrics(draw, model, measure)
    with evaluation(draw, model):
        return Ending(gained(accuracy(model(x_val), y_val), 0.1), bar=0.75)


def _factor(step: int) -> float:
    if step < _WARM_UP:
        return (step + 1) / _WARM_UP
    return 0.5 * (1 + math.cos(math.pi * (step - _WARM_UP) / (_STEPS - _WARM_UP)))


FAMILY = Family(_train, ("wrong_axis", "dropout_too_high", "lr_too_high"), spent="2026-11-25")
