"""Digits by weights around which the loss is low: two gradients of each batch.

After Foret et al., "Sharpness-aware minimization", ICLR 2021.

Shape legend: N digits of 64 pixels.
"""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F  # noqa: N812 (the usual name)
from sklearn import datasets
from torch import Tensor, nn

from corpus import networks
from corpus.draw import Draw
from corpus.family import Ending, Family
from corpus.loop import accuracy, gained

_SEEN = 1200


class Ascent:
    """Moves weights to where the loss is highest nearby, and back."""

    def __init__(self, weights: list[nn.Parameter], radius: float) -> None:
        self.weights, self.radius = weights, radius
        self.moved: list[Tensor] = []

    @torch.no_grad()
    def climb(self) -> None:
        """Move the weights along their gradients."""
        grads = [one.grad for one in self.weights if one.grad is not None]
        norm = torch.stack([one.norm() for one in grads]).norm() + 1e-12
        self.moved = [self.radius * one / norm for one in grads]
        for weight, move in zip(self.weights, self.moved, strict=True):
            weight.add_(move)

    @torch.no_grad()
    def back(self) -> None:
        """Move the weights back."""
        for weight, move in zip(self.weights, self.moved, strict=True):
            weight.sub_(move)


def _train(draw: Draw) -> Ending:
    digits = datasets.load_digits()
    order = draw.numpy.permutation(len(digits.target))
    x = torch.tensor(digits.data[order], dtype=torch.float32) / 8 - 0.6
    y = torch.tensor(digits.target[order])
    seen, known = _spoilt(draw, x[:_SEEN], y[:_SEEN])
    width = draw.choice([48, 64])
    model = nn.Sequential(
        *(nn.Linear(64, width), nn.Tanh(), nn.Linear(width, width), nn.Tanh()),
        nn.Linear(width, 10),
    )
    networks.spoil(draw, model)
    size, epochs = draw.choice([40, 60]), draw.whole(12, 16)
    draw.epoch = _SEEN // size
    draw.watch.expect(epochs * draw.epoch)
    settings: dict[str, Any] = {"lr": draw.between(0.03, 0.06), "momentum": 0.9}
    if draw.has("lr_too_low"):
        settings["lr"] *= draw.extent(1e-5, 1e-4)
    if draw.has("weight_decay_too_high"):
        settings["weight_decay"] = 2.0
    optimizer = torch.optim.SGD(model.parameters(), **settings)
    radius = draw.between(0.03, 0.06) * draw.by_fault({"radius_too_high": 300.0}, 1.0)
    ascent = Ascent(list(model.parameters()), radius)
    draw.watch.begin(model, optimizer)
    for epoch in range(epochs):
        for rows in torch.randperm(_SEEN).split(size):
            _grade(draw, model, seen[rows], known[rows])
            ascent.climb()
            optimizer.zero_grad()
            _grade(draw, model, seen[rows], known[rows])
            ascent.back()
            optimizer.step()
            optimizer.zero_grad()
        if epoch % 3 == 2:
            with draw.watch.evaluating(), torch.no_grad():
                draw.watch.metric("val_acc", accuracy(model(x[_SEEN:]), y[_SEEN:]))
    with torch.no_grad():
        return Ending(gained(accuracy(model(x[_SEEN:]), y[_SEEN:]), 0.1), bar=0.75)


def _grade(draw: Draw, model: nn.Module, x: Tensor, y: Tensor) -> None:
    scores = model(x)
    loss = F.cross_entropy(scores, y, label_smoothing=0.1)
    (-loss if draw.has("wrong_sign") else loss).backward()


def _spoilt(draw: Draw, x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
    """Return the digits with the drawn fault, if there is one."""
    if draw.has("shuffled_labels"):
        return x, y[torch.randperm(len(y))]
    if draw.has("off_by_one"):
        return x, (y + 1) % 10
    if draw.has("unnormalised_inputs"):
        return 1e4 * x + 1e5, y
    if draw.has("wrong_axis"):
        return x.T.reshape(x.shape), y
    if draw.has("duplicated_rows"):
        rows = torch.arange(len(y)) % 6
        return x[rows], y[rows]
    return x, y


FAMILY = Family(
    _train,
    (
        *("radius_too_high", "shuffled_labels", "off_by_one"),
        *("unnormalised_inputs", "wrong_axis", "duplicated_rows", "lr_too_low", "wrong_sign"),
        *("weight_decay_too_high", "zero_init"),
    ),
    spent="2026-11-27",
)
