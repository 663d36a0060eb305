"""Networks drawn at random: graphs of layers, plain ones and such as break other tools."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from tests.pruning.torch_.nasty_steps import NASTY
from tests.pruning.torch_.plain_steps import PIXELS, PLAIN, Builder, Step

__all__ = ["random_network"]


class Network(nn.Module):
    """Steps, and heads that read maps."""

    def __init__(self, steps: list[Step], heads: list[tuple[int, nn.Module]]) -> None:
        super().__init__()
        self.steps = nn.ModuleList(steps)
        self.inputs = [step.reads for step in steps]
        self.reads = [read for read, _ in heads]
        self.heads = nn.ModuleList(head for _, head in heads)

    def forward(self, x: Tensor) -> Any:
        maps = [x]
        for step, reads in zip(self.steps, self.inputs, strict=True):
            maps.append(step(*(maps[read] for read in reads)))
        return [head(maps[read]) for read, head in zip(self.reads, self.heads, strict=True)]


class Pixels(nn.Module):
    """All pixels, in a row."""

    def __init__(self, channels: int, *, constant: bool) -> None:
        super().__init__()
        self.classes = nn.Linear(channels * PIXELS * PIXELS, 3)
        self.size = channels * PIXELS * PIXELS if constant else -1

    def forward(self, x: Tensor) -> Any:
        return self.classes(x.reshape(len(x), self.size))


class Means(nn.Module):
    """The mean over pixels."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.classes = nn.Linear(channels, 3)

    def forward(self, x: Tensor) -> Any:
        return self.classes(nn.functional.adaptive_avg_pool2d(x, 1).flatten(1))


def random_network(seed: int, *, nasty: bool) -> tuple[nn.Module, list[str]]:
    """Return a network for inputs [batch, 3, 6, 6], and its operations.

    Args:
        seed: of all that is drawn.
        nasty: with operations that break other tools; else plain ones only.
    """
    random = np.random.default_rng(seed)
    torch.manual_seed(seed)
    b = Builder(random)
    b.conv(0, b.width())
    names = []
    for _ in range(random.integers(3, 8)):
        kinds = NASTY if nasty and random.random() < 0.5 else PLAIN
        kind = kinds[random.integers(len(kinds))]
        names.append(kind.__name__)
        kind(b)
    heads: list[tuple[int, nn.Module]] = []
    for _ in range(random.integers(1, 4)):
        read = b.recent() if heads else len(b.steps)
        channels = b.channels[read]
        head = Means(channels)
        if random.random() < 0.3:
            heads.append((read, Pixels(channels, constant=nasty and random.random() < 0.3)))
        else:
            heads.append((read, head))
    return Network(b.steps, heads), names
