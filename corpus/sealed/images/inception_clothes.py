"""Clothes by blocks of several widths, with a second classifier half-way: GoogLeNet, in small.

After Szegedy et al., "Going deeper with convolutions", CVPR 2015, with the pictures of Xiao, Rasul
and Vollgraf, "Fashion-MNIST", 2017.

Shape legend: N pictures of 14 x 14 pixels.
"""

from __future__ import annotations

from collections.abc import Mapping

import torch
import torch.nn.functional as F  # noqa: N812 (the usual name)
from torch import Tensor, nn

from corpus.data.fashion import clothes
from corpus.data.held_out import HeldOut, held_out
from corpus.draw import Draw
from corpus.epochs import fit, learning_rate, optimizer_of, plan, trained
from corpus.family import Ending, Family
from corpus.loop import accuracy, gained
from corpus.networks import spoil

_KINDS, _SEEN = 10, 900


class Block(nn.Module):
    """Convolutions of three widths and a pooling, side by side."""

    def __init__(self, inputs: int, width: int) -> None:
        super().__init__()
        self.one = nn.Conv2d(inputs, width, 1)
        self.three = nn.Sequential(
            *(nn.Conv2d(inputs, width, 1), nn.ReLU(), nn.Conv2d(width, width, 3, padding=1))
        )
        self.five = nn.Sequential(
            *(nn.Conv2d(inputs, width // 2, 1), nn.ReLU()),
            nn.Conv2d(width // 2, width // 2, 5, padding=2),
        )
        self.pool = nn.Sequential(nn.MaxPool2d(3, 1, 1), nn.Conv2d(inputs, width // 2, 1))
        self.out = 3 * width

    def forward(self, x: Tensor) -> Tensor:
        """Return [N, 3 W, H, H] of float32 [N, *, H, H]."""
        return F.relu(torch.cat([self.one(x), self.three(x), self.five(x), self.pool(x)], 1))


class GoogLeNet(nn.Module):
    """Scores of the last and of the second classifier."""

    def __init__(self, draw: Draw, width: int) -> None:
        super().__init__()
        self.stem = nn.Conv2d(1, 8, 3, padding=1)
        self.first = Block(8, width)
        self.second = Block(self.first.out, width)
        self.auxiliary = nn.Linear(self.first.out, _KINDS)
        self.drop = nn.Dropout(draw.by_fault({"dropout_too_high": 0.99}, 0.2))
        self.fc = nn.Linear(self.second.out * 9, _KINDS)

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Return scores, both [N, 10], of pictures float32 [N, 1, 14, 14]."""
        x = F.max_pool2d(F.relu(self.stem(x)), 2)
        x = self.first(x)
        early = self.auxiliary(x.mean((2, 3)))
        x = F.max_pool2d(self.second(x), 2)
        return self.fc(self.drop(x.flatten(1))), early


def _train(draw: Draw) -> Ending:
    rows = _pictures(draw, 1300)
    model = GoogLeNet(draw, draw.choice([8, 12]))
    spoil(draw, model)
    length = plan(draw, _SEEN, [15, 20], (5, 7))
    rate = learning_rate(draw, 1e-2, 2e-2)
    optimizer = optimizer_of(draw, "sgd", trained(draw, model, model.fc), rate, 1e-4)
    scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, length.steps)
    loss_fn = draw.watch.loss(F.cross_entropy)

    def compute(picked: Tensor) -> Tensor:
        last, early = model(rows.x[picked])
        if draw.has("double_softmax"):
            last, early = last.softmax(1), early.softmax(1)
        return loss_fn(last, rows.y[picked]) + 0.3 * F.cross_entropy(early, rows.y[picked])

    def evaluate() -> Mapping[str, float]:
        scores = model(rows.x_val)[0]
        return {"top1": accuracy(scores, rows.y_val)}

    fit(
        *(draw, model, optimizer, length, compute),
        evaluate=evaluate,
        per_batch=scheduler,
        labels=rows.y,
    )
    model.eval()
    with torch.no_grad():
        right = accuracy(model(rows.x_test)[0], rows.y_test)
    return Ending(gained(right, 1 / _KINDS), bar=0.5)


def _pictures(draw: Draw, count: int) -> HeldOut:
    """Return standardised pictures float32 [count, 1, 14, 14] and kinds int64 [count]."""
    order = torch.tensor(draw.numpy.permutation(6000)[:count])
    x, y = (one[order] for one in clothes(6000))
    return held_out(
        *(draw, x, y, _SEEN),
        prepared={"unnormalised_inputs": (3000 * x + 2500, y)},
    )


FAMILY = Family(
    _train,
    (
        *("shuffled_labels", "unnormalised_inputs", "dropout_too_high", "not_shuffled"),
        *("missing_zero_grad", "double_softmax", "same_batch", "dead_relu"),
        *("lr_too_low", "lr_too_high"),
    ),
)
