"""Digits somewhere in a picture: a network looks where another one tells it to.

After Jaderberg et al., "Spatial transformer networks", NeurIPS 2015.

Shape legend: N pictures of 12 rows and columns.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F  # noqa: N812 (the usual name)
from sklearn import datasets
from torch import Tensor, nn

from corpus.draw import Draw
from corpus.family import Ending, Family
from corpus.loop import accuracy, gained

_SIDE, _SEEN = 12, 1300


class Glimpse(nn.Module):
    """Scores [N, 10] of pictures [N, 1, 12, 12], from the part that is looked at."""

    def __init__(self, width: int, dropout: float) -> None:
        super().__init__()
        self.where = nn.Sequential(
            *(nn.Conv2d(1, 8, 5, 2, 2), nn.ReLU(), nn.Flatten()),
            *(nn.Linear(8 * 36, 32), nn.Tanh(), nn.Linear(32, 2)),
        )
        self.what = nn.Sequential(
            *(nn.Flatten(), nn.Linear(64, width), nn.ReLU()),
            *(nn.Dropout(dropout), nn.Linear(width, 10)),
        )

    def forward(self, picture: Tensor) -> Tensor:
        """Return the scores."""
        place = self.where(picture)
        scale = (8 / _SIDE) * torch.eye(2).expand(len(picture), -1, -1)
        grid = F.affine_grid(
            torch.cat([scale, place[:, :, None]], 2), [len(picture), 1, 8, 8], align_corners=False
        )
        scores: Tensor = self.what(F.grid_sample(picture, grid, align_corners=False))
        return scores


def _train(draw: Draw) -> Ending:
    x, y = _pictures(draw)
    seen, known = _spoilt(draw, x[:_SEEN], y[:_SEEN])
    dropout = draw.by_fault({"dropout_too_high": 0.99}, draw.choice([0.0, 0.1]))
    model = Glimpse(draw.choice([64, 96]), dropout)
    _begin(draw, model)
    size, epochs = draw.choice([26, 50]), draw.whole(20, 28)
    draw.epoch = len(seen) // size
    draw.watch.expect(epochs * draw.epoch)
    rate = draw.between(2e-3, 4e-3)
    rate *= draw.by_fault({"lr_too_low": draw.extent(1e-5, 1e-4), "lr_too_high": 1000.0}, 1.0)
    groups = [{"params": model.what.parameters()}, {"params": model.where.parameters()}]
    if draw.has("not_in_optimizer"):
        groups = groups[1:]
    optimizer = torch.optim.RAdam(groups, lr=rate)
    halved = torch.optim.lr_scheduler.MultiStepLR(optimizer, [epochs // 2, 3 * epochs // 4], 0.5)
    criterion = draw.watch.loss(nn.CrossEntropyLoss())
    draw.watch.begin(model, optimizer)
    for epoch in range(epochs):
        model.train()
        for rows in torch.randperm(len(seen)).split(size)[: draw.epoch]:
            optimizer.zero_grad()
            scores = model(seen[rows])
            loss = criterion(-scores if draw.has("wrong_sign") else scores, known[rows])
            loss.backward()
            optimizer.step()
        halved.step()
        model.eval()
        if epoch % 3 == 2:
            with draw.watch.evaluating(), torch.no_grad():
                draw.watch.metric("val/acc", accuracy(model(x[_SEEN:]), y[_SEEN:]))
    model.eval()
    with torch.no_grad():
        return Ending(gained(accuracy(model(x[_SEEN:]), y[_SEEN:]), 0.1), bar=0.55)


@torch.no_grad()
def _begin(draw: Draw, model: Glimpse) -> None:
    """Look at the middle of a picture first; a fault of the first weights looks past it."""
    last = model.where[-1]
    assert isinstance(last, nn.Linear)
    last.weight.zero_()
    last.bias.zero_()
    if draw.has("looks_outside"):
        last.bias.fill_(6.0)
    if draw.has("zero_init"):
        for weight in model.parameters():
            weight.zero_()


def _spoilt(draw: Draw, x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
    """Return the pictures with the drawn fault, if there is one."""
    if draw.has("shuffled_labels"):
        return x, y[torch.randperm(len(y))]
    if draw.has("single_label"):
        return x[y == y[0]].repeat(8, 1, 1, 1), y[y == y[0]].repeat(8)
    if draw.has("off_by_one"):
        return x, (y + 1) % 10
    if draw.has("constant_inputs"):
        return torch.zeros_like(x), y
    return x, y


def _pictures(draw: Draw) -> tuple[Tensor, Tensor]:
    """Return pictures float32 [N, 1, 12, 12] and digits int64 [N], in a random order."""
    digits = datasets.load_digits()
    order = draw.numpy.permutation(len(digits.target))
    light = torch.tensor(digits.images[order], dtype=torch.float32) / 8
    x = draw.between(0.1, 0.2) * torch.randn(len(order), 1, _SIDE, _SIDE)
    corners = torch.randint(_SIDE - 7, (len(order), 2)).tolist()
    for picture, digit, (top, left) in zip(x, light, corners, strict=True):
        picture[0, top : top + 8, left : left + 8] += digit
    return x - 0.3, torch.tensor(digits.target[order])


FAMILY = Family(
    _train,
    (
        *("looks_outside", "shuffled_labels", "single_label", "off_by_one", "constant_inputs"),
        *("dropout_too_high", "lr_too_low", "lr_too_high", "not_in_optimizer"),
        *("wrong_sign", "zero_init"),
    ),
    spent="2026-11-27",
)
