"""Scikit-learn's digits, a residual network, and its training."""

from __future__ import annotations

from collections.abc import Iterator
from statistics import mean
from typing import NamedTuple

import torch
from sklearn.datasets import load_digits
from torch import Tensor, nn
from torch.nn import functional as F  # noqa: N812 (its usual name)

__all__ = ["Data", "accuracy", "digits", "residual", "shown", "train"]

_BATCH = 64


class Data(NamedTuple):
    """Images, float32 [N, 1, 8, 8], and labels, int64 [N], or [N, 8, 8] with 10: no class."""

    x: Tensor
    y: Tensor

    def batches(self, draw: torch.Generator) -> Iterator[tuple[Tensor, Tensor]]:
        """Yield shuffled batches."""
        for chosen in torch.randperm(len(self.x), generator=draw).split(_BATCH):
            yield self.x[chosen], self.y[chosen]


class _Block(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.one = nn.Sequential(nn.Conv2d(width, width, 3, padding=1), nn.BatchNorm2d(width))
        self.two = nn.Sequential(nn.Conv2d(width, width, 3, padding=1), nn.BatchNorm2d(width))

    def forward(self, x: Tensor) -> Tensor:
        """Return float [batch, width, height, width of the image]."""
        return F.relu(x + self.two(F.relu(self.one(x))))


def residual() -> nn.Sequential:
    """Return a small residual network with random weights."""
    return nn.Sequential(
        nn.Conv2d(1, 24, 3, padding=1),
        nn.BatchNorm2d(24),
        nn.ReLU(),
        _Block(24),
        nn.Conv2d(24, 48, 3, padding=1, stride=2),
        nn.BatchNorm2d(48),
        nn.ReLU(),
        _Block(48),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Linear(48, 10),
    )


def train(model: nn.Module, data: Data, epochs: int, draw: torch.Generator) -> None:
    """Train a model in place.

    Args:
        model: the network.
        data: images and labels.
        epochs: number of passes over them.
        draw: draws their order.
    """
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9, weight_decay=5e-4)
    model.train()
    for _ in range(epochs):
        for x, y in data.batches(draw):
            optimizer.zero_grad()
            F.cross_entropy(model(x), y).backward()
            optimizer.step()


def accuracy(model: nn.Module, data: Data) -> float:
    """Return the share of labels that a model predicts, of those with a class."""
    model.eval()
    with torch.inference_mode():
        return float((model(data.x).argmax(1) == data.y)[data.y < 10].float().mean())


def digits(draw: torch.Generator) -> tuple[Data, Data]:
    """Return images for training and for tests, divided at random."""
    found = load_digits()
    x = torch.tensor(found.images[:, None] / 16, dtype=torch.float32)
    y = torch.tensor(found.target)
    order = torch.randperm(len(x), generator=draw)
    first, last = order[:1200], order[1200:]
    return Data(x[first], y[first]), Data(x[last], y[last])


def shown(values: list[float]) -> str:
    """Return the mean of shares in percent, with the smallest and largest; "" for none."""
    if not values:
        return ""
    return f"{100 * mean(values):.1f} ({100 * min(values):.1f} - {100 * max(values):.1f})"
