"""Targets by operations: filters chosen by their scores, and by the loss per operation saved."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional as F  # noqa: N812 (its usual name)

from benchmarks.measure import table
from benchmarks.pruning.digits import Data, accuracy, digits, residual, shown, train
from vinedresser.pruning import prune

__all__ = ["print_macs"]

_CRITERIA = ("l1", "taylor_activation", "taylor_weight")
# Shares of the operations to get down to: without fine-tuning, and with it.
_ALONE, _TUNED = 0.85, 0.5
_EPOCHS, _TUNING, _BATCHES = 20, 3, 8


def _layer(inner: int, outer: int, kernel: int = 3, stride: int = 1, groups: int = 1) -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(inner, outer, kernel, stride, kernel // 2, groups=groups, bias=False),
        nn.BatchNorm2d(outer),
        nn.ReLU(),
    )


def _classifier(*layers: nn.Module, width: int) -> nn.Sequential:
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(width, 10))


def _plain() -> nn.Sequential:
    layers = [_layer(1, 24), _layer(24, 24), nn.MaxPool2d(2), _layer(24, 32), _layer(32, 32)]
    return _classifier(*layers, nn.MaxPool2d(2), _layer(32, 64), _layer(64, 64), width=64)


def _separable() -> nn.Sequential:
    layers = [_layer(1, 16)]
    for inner, outer, stride in ((16, 32, 1), (32, 32, 1), (32, 64, 2), (64, 64, 1), (64, 96, 2)):
        layers += [_layer(inner, inner, stride=stride, groups=inner), _layer(inner, outer, 1)]
    return _classifier(*layers, width=96)


class _UNet(nn.Module):
    """Labels each pixel."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Sequential(_layer(1, 16), _layer(16, 16))
        self.second = nn.Sequential(_layer(16, 32), _layer(32, 32))
        self.third = nn.Sequential(_layer(32, 64), _layer(64, 32))
        self.fourth = nn.Sequential(_layer(64, 32), _layer(32, 16))
        self.fifth = nn.Sequential(_layer(32, 16), nn.Conv2d(16, 11, 1))

    def forward(self, x: Tensor) -> Tensor:
        """Map float [batch, 1, height, width] to [batch, 11, height, width]."""
        first = self.first(x)
        second = self.second(F.max_pool2d(first, 2))
        third = self.third(F.max_pool2d(second, 2))
        fourth = self.fourth(torch.cat([second, F.interpolate(third, scale_factor=2.0)], 1))
        labels: Tensor = self.fifth(torch.cat([first, F.interpolate(fourth, scale_factor=2.0)], 1))
        return labels


_NETWORKS: dict[str, Callable[[], nn.Module]] = {
    "ResNet": residual,
    "VGG": _plain,
    "separable": _separable,
    "U-Net": _UNet,
}


def _pixels(data: Data) -> Data:
    """Return the same images with a label for each pixel: the digit that it is a part of."""
    return Data(data.x, torch.where(data.x[:, 0] > 0.4, data.y[:, None, None], 10))


class _Trained(NamedTuple):
    """An unpruned network, its data, and the seed of both."""

    model: nn.Module
    training: Data
    test: Data
    seed: int


def print_macs(seeds: int) -> None:
    """Print accuracies by network, criterion and choice of filters."""
    found: dict[tuple[str, str], dict[tuple[float, bool], list[float]]] = {}
    unpruned: dict[str, list[float]] = {}
    for seed in range(seeds):
        for name, build in _NETWORKS.items():
            draw = torch.Generator().manual_seed(seed)
            torch.manual_seed(seed)
            training, test = digits(draw)
            if name == "U-Net":
                training, test = _pixels(training), _pixels(test)
            model = build()
            train(model, training, _EPOCHS, draw)
            trained = _Trained(model, training, test, seed)
            unpruned.setdefault(name, []).append(accuracy(model, test))
            for criterion in _CRITERIA:
                cells = found.setdefault((name, criterion), {})
                for share in (_ALONE, _TUNED):
                    for per_mac in (False, True):
                        figure = _figure(trained, criterion, share, per_mac=per_mac)
                        cells.setdefault((share, per_mac), []).append(figure)
    rows = [
        [name, shown(unpruned[name]), criterion]
        + [shown(cells[share, per_mac]) for share in (_ALONE, _TUNED) for per_mac in (False, True)]
        for (name, criterion), cells in found.items()
    ]
    alone, tuned = f"{_ALONE:.0%}", f"{_TUNED:.0%}, {_TUNING} epochs"
    print(f"accuracy on digits at a share of the operations, {seeds} seeds, mean (range)")
    header = ["network", "unpruned", "criterion"]
    header += [f"{part}, {way}" for part in (alone, tuned) for way in ("scores", "loss per MAC")]
    print(table(rows, header), "\n")


def _figure(trained: _Trained, criterion: str, share: float, *, per_mac: bool) -> float:
    """Return the accuracy at a share of the operations."""
    model, training, test, seed = trained

    def losses(pruned: nn.Module) -> Iterator[Tensor]:
        batches = training.batches(torch.Generator().manual_seed(0))
        for _, (images, labels) in zip(range(_BATCHES), batches, strict=False):
            yield F.cross_entropy(pruned(images), labels)

    macs = prune(model, test.x[:2], 1).before.macs
    pruned = prune(
        model,
        test.x[:2],
        macs=int(share * macs),
        criterion=criterion,
        losses=losses,
        per_mac=per_mac,
    ).model
    if share == _TUNED:
        _tune(pruned, training, torch.Generator().manual_seed(seed))
    return accuracy(pruned, test)


def _tune(model: nn.Module, data: Data, draw: torch.Generator) -> None:
    """Fine-tune a model at a learning rate that falls to nearly 0."""
    optimizer = torch.optim.SGD(model.parameters(), lr=0.02, momentum=0.9, weight_decay=5e-4)
    batches = [batch for _ in range(_TUNING) for batch in data.batches(draw)]
    schedule = torch.optim.lr_scheduler.LinearLR(optimizer, 1, 0.05, len(batches))
    model.train()
    for x, y in batches:
        optimizer.zero_grad()
        F.cross_entropy(model(x), y).backward()
        optimizer.step()
        schedule.step()
