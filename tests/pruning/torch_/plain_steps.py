"""Layers for networks that are drawn at random, and how they are added."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

__all__ = ["PIXELS", "PLAIN", "Applied", "Builder", "Random", "Step"]

PIXELS = 6
Random = np.random.Generator


class Step(nn.Module):
    """A layer of a network, which reads some of its feature maps, [batch, channels, 6, 6].

    Attributes:
        reads: numbers of the maps.
        channels: channels of the result.
    """

    def __init__(self, reads: list[int], channels: int) -> None:
        super().__init__()
        self.reads = reads
        self.channels = channels


class Conv(Step):
    """A convolution with normalisation and activation."""

    def __init__(
        self, random: Random, read: int, inputs: int, outputs: int, groups: int = 1
    ) -> None:
        super().__init__([read], outputs)
        size = int(random.choice([1, 3]))
        self.conv = nn.Conv2d(inputs, outputs, size, padding=size // 2, groups=groups)
        norms = [nn.Identity(), nn.BatchNorm2d(outputs), nn.BatchNorm2d(outputs, affine=False)]
        self.norm = norms[random.integers(3)]
        self.activation = [nn.ReLU(), nn.SiLU(inplace=True), nn.Sigmoid()][random.integers(3)]

    def forward(self, x: Tensor) -> Any:
        return self.activation(self.norm(self.conv(x)))


class Applied(Step):
    """A function of maps and layers."""

    def __init__(
        self,
        reads: list[int],
        channels: int,
        function: Callable[..., Any],
        **layers: nn.Module | Tensor,
    ) -> None:
        super().__init__(reads, channels)
        self.function = function
        for name, layer in layers.items():
            if isinstance(layer, Tensor) and not isinstance(layer, nn.Parameter):
                self.register_buffer(name, layer)
            else:
                setattr(self, name, layer)

    def forward(self, *maps: Tensor) -> Any:
        return self.function(self, *maps)


class Builder:
    """Adds steps at random.

    Args:
        random: draws everything.

    Attributes:
        random: draws everything.
        channels: channels of each map.
        steps: the steps so far.
    """

    def __init__(self, random: Random) -> None:
        self.random = random
        self.channels = [3]
        self.steps: list[Step] = []

    def add(self, step: Step) -> int:
        """Add a step; return the number of its map."""
        self.steps.append(step)
        self.channels.append(step.channels)
        return len(self.steps)

    def apply(
        self, reads: list[int], channels: int, function: Callable[..., Any], **layers: Any
    ) -> int:
        """Add a function of maps."""
        return self.add(Applied(reads, channels, function, **layers))

    def recent(self) -> int:
        """Return a map, rather one of the last; never the input."""
        last = len(self.steps)
        return max(1, last - int(self.random.integers(0, 4)))

    def conv(self, read: int, outputs: int, groups: int = 1) -> int:
        """Add a convolution."""
        return self.add(Conv(self.random, read, self.channels[read], outputs, groups))

    def width(self) -> int:
        """Return a number of channels."""
        return int(self.random.choice([8, 12, 16]))


# Plain operations


def convolution(b: Builder) -> None:
    b.conv(b.recent(), b.width())


def add(b: Builder) -> None:
    one, other = b.recent(), b.recent()
    if b.channels[one] != b.channels[other]:
        other = b.conv(other, b.channels[one])
    b.apply([one, other], b.channels[one], lambda _, x, y: x + y)


def concatenate(b: Builder) -> None:
    one, other = b.recent(), b.recent()
    joined = b.apply(
        [one, other], b.channels[one] + b.channels[other], lambda _, x, y: torch.cat([x, y], 1)
    )
    b.conv(joined, b.width())


def split(b: Builder) -> None:
    whole = b.conv(b.recent(), 16)
    halves = [b.apply([whole], 8, lambda _, x, i=i: x.chunk(2, 1)[i]) for i in range(2)]
    halves[0] = b.conv(halves[0], 8)
    b.apply(halves, 8, lambda _, x, y: x * y)


def grouped(b: Builder) -> None:
    inner = b.conv(b.recent(), 16)
    b.conv(inner, 16, groups=4)


def depthwise(b: Builder) -> None:
    read = b.recent()
    channels = b.channels[read]
    b.conv(b.conv(read, channels, groups=channels), b.width())


def squeeze_excite(b: Builder) -> None:
    read = b.recent()
    channels = b.channels[read]
    b.apply(
        [read],
        channels,
        lambda s, x: x * s.up(torch.relu(s.down(x.mean((2, 3))))).sigmoid()[:, :, None, None],
        down=nn.Linear(channels, 6),
        up=nn.Linear(6, channels),
    )


def shared(b: Builder) -> None:
    read = b.recent()
    channels = b.channels[read]
    conv = nn.Conv2d(channels, channels, 3, padding=1)
    for _ in range(2):
        read = b.apply([read], channels, lambda s, x: torch.relu(s.conv(x)), conv=conv)


def transposed(b: Builder) -> None:
    read = b.recent()
    width = b.width()
    conv = nn.ConvTranspose2d(b.channels[read], width, 3, padding=1)
    b.apply([read], width, lambda s, x: s.conv(x), conv=conv)


def pooled(b: Builder) -> None:
    read = b.recent()
    b.apply([read], b.channels[read], lambda _, x: nn.functional.max_pool2d(x, 3, 1, 1))


PLAIN: list[Callable[[Builder], None]] = [
    convolution, add, concatenate, split, grouped, depthwise, squeeze_excite, shared, transposed,
    pooled,
]  # fmt: skip
