"""Criteria against random order: accuracy of a small network on digits before fine-tuning."""

from __future__ import annotations

from collections.abc import Iterator
from statistics import mean
from typing import NamedTuple

import torch
from sklearn.datasets import load_digits
from torch import Tensor, nn
from torch.nn import functional as F  # noqa: N812 (its usual name)

from benchmarks.measure import table
from vinedresser.pruning import PruningError, prune
from vinedresser.pruning.criteria.registry import CRITERIA

__all__ = ["print_criteria"]

_SHARES = (10, 20, 30, 40)
_EPOCHS, _TUNING, _BATCH = 20, 3, 64


class _Data(NamedTuple):
    """Images, float32 [N, 1, 8, 8], and labels, int64 [N]."""

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


def _network() -> nn.Sequential:
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


def _train(model: nn.Module, data: _Data, epochs: int, draw: torch.Generator) -> None:
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9, weight_decay=5e-4)
    model.train()
    for _ in range(epochs):
        for x, y in data.batches(draw):
            optimizer.zero_grad()
            F.cross_entropy(model(x), y).backward()
            optimizer.step()


def _accuracy(model: nn.Module, data: _Data) -> float:
    model.eval()
    with torch.inference_mode():
        return float((model(data.x).argmax(1) == data.y).float().mean())


def print_criteria(seeds: int) -> None:
    """Print accuracies by criterion and share, means over seeds with the smallest and largest."""
    digits = load_digits()
    x = torch.tensor(digits.images[:, None] / 16, dtype=torch.float32)
    y = torch.tensor(digits.target)
    before: dict[tuple[str, int], list[float]] = {}
    after: dict[tuple[str, int], list[float]] = {}
    unpruned = []
    for seed in range(seeds):
        draw = torch.Generator().manual_seed(seed)
        torch.manual_seed(seed)
        order = torch.randperm(len(x), generator=draw)
        train = _Data(x[order[:1200]], y[order[:1200]])
        test = _Data(x[order[1200:]], y[order[1200:]])
        model = _network()
        _train(model, train, _EPOCHS, draw)
        unpruned.append(_accuracy(model, test))

        def losses(pruned: nn.Module, train: _Data = train) -> Iterator[Tensor]:
            for images, labels in train.batches(torch.Generator().manual_seed(0)):
                yield F.cross_entropy(pruned(images), labels)

        for name, kind in CRITERIA.items():
            chosen = kind(seed) if name == "random" else kind()  # type: ignore[call-arg]
            for share in _SHARES:
                try:
                    pruned = prune(model, x[:2], f"{share}%", criterion=chosen, losses=losses)
                except PruningError as error:
                    print(f"{name}: {error}")
                    break
                before.setdefault((name, share), []).append(_accuracy(pruned.model, test))
                if share == _SHARES[-1]:
                    _train(pruned.model, train, _TUNING, torch.Generator().manual_seed(seed))
                    after.setdefault((name, share), []).append(_accuracy(pruned.model, test))
    print(
        f"accuracy on digits, {seeds} seeds, mean (smallest - largest); unpruned {_shown(unpruned)}"
    )
    rows = [
        [
            name,
            *(_shown(before.get((name, share), [])) for share in _SHARES),
            _shown(after.get((name, _SHARES[-1]), [])),
        ]
        for name in CRITERIA
    ]
    shares = [f"{share} % removed" for share in _SHARES]
    print(table(rows, ["criterion", *shares, f"same, {_TUNING} epochs later"]), "\n")


def _shown(values: list[float]) -> str:
    if not values:
        return ""
    return f"{100 * mean(values):.1f} ({100 * min(values):.1f} - {100 * max(values):.1f})"
