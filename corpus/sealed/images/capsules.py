"""Digits by capsules: vectors that agree on what is seen, and a margin loss of their lengths.

After Sabour, Frosst and Hinton, "Dynamic routing between capsules", NeurIPS 2017, with the digits
of Alpaydin and Kaynak in scikit-learn.

Shape legend: N pictures, P primary capsules of 4 numbers, 10 digits of 8 numbers.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F  # noqa: N812 (the usual name)
from sklearn.datasets import load_digits
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset

from corpus.data.held_out import HeldOut, held_out
from corpus.draw import Draw
from corpus.epochs import learning_rate, optimizer_of, plan
from corpus.family import Ending, Family
from corpus.loop import accuracy, gained
from corpus.networks import blank, spoil

_DIGITS, _SEEN = 10, 700


def _squash(x: Tensor, dim: int = -1) -> Tensor:
    square = x.square().sum(dim, keepdim=True)
    return square / (1 + square) * x / (square + 1e-8).sqrt()


class CapsNet(nn.Module):
    """Lengths of the capsules of digits."""

    def __init__(self, draw: Draw, channels: int) -> None:
        super().__init__()
        self.conv = nn.Conv2d(1, channels, 3, padding=1)
        self.primary = nn.Conv2d(channels, 8 * 4, 3, stride=2)
        spread = draw.by_fault({"small_init": 1e-4}, 0.1)
        self.weight = nn.Parameter(spread * torch.randn(8 * 9, _DIGITS, 8, 4))
        # Capsules are normalised over the digits to which they send.
        self.axis = 1 if draw.has("softmax_wrong_axis") else 2

    def forward(self, x: Tensor) -> Tensor:
        """Return lengths [N, 10] of pictures float32 [N, 1, 8, 8]."""
        x = self.primary(F.relu(self.conv(x)))
        u = _squash(x.unflatten(1, (8, 4)).permute(0, 1, 3, 4, 2).flatten(1, 3))
        told = torch.einsum("pdij,npj->npdi", self.weight, u)
        logits = torch.zeros(told.shape[:3])
        v = told.mean(1)
        for _ in range(2):
            v = _squash((logits.softmax(self.axis)[..., None] * told).sum(1))
            logits = logits + (told.detach() * v.detach()[:, None]).sum(3)
        lengths: Tensor = v.norm(dim=2)
        return lengths


def _margin_loss(length: Tensor, y: Tensor) -> Tensor:
    one = F.one_hot(y, _DIGITS)
    right = one * (0.9 - length).relu().square()
    wrong = 0.5 * (1 - one) * (length - 0.1).relu().square()
    return (right + wrong).sum(1).mean()


def _swapped(length: Tensor, y: Tensor) -> Tensor:
    one = F.one_hot(y, _DIGITS)
    right = one * (length - 0.9).relu().square()
    wrong = 0.5 * (1 - one) * (0.1 - length).relu().square()
    return (right + wrong).sum(1).mean()


def _train(draw: Draw) -> Ending:
    rows = _digits(draw)
    model = CapsNet(draw, draw.choice([12, 16]))
    spoil(draw, model)
    blank(draw, model)
    length = plan(draw, _SEEN, [20, 25], (6, 8))
    rate = learning_rate(draw, 3e-3, 6e-3)
    optimizer = optimizer_of(draw, "adam", list(model.parameters()), rate)
    scheduler = torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.9)
    loss_fn = draw.watch.loss(_swapped if draw.has("wrong_sign") else _margin_loss)
    draw.watch.begin(model, optimizer)
    loader = DataLoader(TensorDataset(rows.x, rows.y), length.size, shuffle=True, drop_last=True)
    for _ in range(length.epochs):
        model.train()
        for data, target in loader:
            optimizer.zero_grad()
            loss = loss_fn(model(data), target)
            loss.backward()
            optimizer.step()
            if draw.has("scheduler_per_batch"):
                scheduler.step()
        if not draw.has("scheduler_per_batch"):
            scheduler.step()
        model.eval()
        with draw.watch.evaluating(), torch.no_grad():
            lengths = model(rows.x_val)
            draw.watch.metric("test_loss", float(_margin_loss(lengths, rows.y_val)))
            draw.watch.metric("test_acc", accuracy(lengths, rows.y_val))
    with torch.no_grad():
        return Ending(gained(accuracy(model(rows.x_test), rows.y_test), 1 / _DIGITS), bar=0.65)


def _digits(draw: Draw) -> HeldOut:
    """Return pictures float32 [1000, 1, 8, 8] of values of 0 to 1, and digits int64 [1000]."""
    values, digits = load_digits(return_X_y=True)
    order = draw.numpy.permutation(len(values))[:1000]
    x = torch.tensor(values[order] / 16).float().reshape(-1, 1, 8, 8)
    y = torch.tensor(digits[order])
    return held_out(*(draw, x, y, _SEEN), training={"single_label": (x, torch.full_like(y, 3))})


FAMILY = Family(
    _train,
    (
        *("shuffled_labels", "single_label", "wrong_sign", "small_init"),
        *("zero_init", "scheduler_per_batch", "lr_too_low", "lr_too_high"),
    ),
)
