"""A small PyTorch network on scikit-learn's digits, for `vinedresser prune prune.toml`.

Replace the functions by your own; prune.toml names them.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache

import torch
from sklearn.datasets import load_digits
from torch import nn

from vinedresser.capture import Hook

BATCH = 64
Data = tuple[torch.Tensor, torch.Tensor]


@cache
def data() -> tuple[Data, Data]:
    """Return images, float32 [N, 1, 8, 8], and labels, int64 [N]: for training, and for tests."""
    digits = load_digits()
    images = torch.tensor(digits.images / 16.0, dtype=torch.float32)[:, None]
    labels = torch.tensor(digits.target)
    order = torch.randperm(len(images), generator=torch.Generator().manual_seed(0))
    images, labels = images[order], labels[order]
    return (images[:1400], labels[:1400]), (images[1400:], labels[1400:])


def batches(seed: int) -> Iterator[Data]:
    """Yield the batches of an epoch in a random order."""
    images, labels = data()[0]
    order = torch.randperm(len(images), generator=torch.Generator().manual_seed(seed))
    for chosen in order.split(BATCH):
        yield images[chosen], labels[chosen]


def network() -> nn.Sequential:
    """Return the network with random weights."""
    torch.manual_seed(0)
    return nn.Sequential(
        nn.Conv2d(1, 32, 3, padding=1),
        nn.BatchNorm2d(32),
        nn.ReLU(),
        nn.Conv2d(32, 64, 3, padding=1),
        nn.BatchNorm2d(64),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Conv2d(64, 64, 3, padding=1),
        nn.BatchNorm2d(64),
        nn.ReLU(),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Linear(64, 10),
    )


def fit(model: nn.Module, lr: float, epochs: int, hook: Hook | None = None) -> None:
    """Train a model in place."""
    optimizer = torch.optim.Adam(model.parameters(), lr=lr)
    loss = nn.CrossEntropyLoss()
    if hook is not None:
        hook.watch(model, loss=loss, optimizer=optimizer)
    for epoch in range(epochs):
        model.train()
        for images, labels in batches(epoch):
            optimizer.zero_grad()
            loss(model(images), labels).backward()
            optimizer.step()


def pretrain(model: nn.Module) -> None:
    """Train the unpruned network, once; a file of weights does as well."""
    fit(model, lr=2e-3, epochs=10)


def example() -> torch.Tensor:
    """Return an input of the network."""
    return data()[1][0][:1]


def train(model: nn.Module, hook: Hook, lr: float, epochs: int) -> None:
    """Fine-tune a pruned network; lr and epochs come from [run.parameters]."""
    torch.manual_seed(1)
    fit(model, lr, epochs, hook)


def evaluate(model: nn.Module) -> float:
    """Return the accuracy on the test set."""
    images, labels = data()[1]
    model.eval()
    with torch.no_grad():
        return float((model(images).argmax(1) == labels).float().mean())


def losses(model: nn.Module) -> Iterator[torch.Tensor]:
    """Yield the losses of some batches, by whose gradients filters are ranked."""
    for images, labels in list(batches(0))[:8]:
        yield nn.functional.cross_entropy(model(images), labels)
