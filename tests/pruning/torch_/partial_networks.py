"""Networks with layers that an example does not reach, or reaches in training mode only."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F  # noqa: N812 (its usual name)

__all__ = ["IN_TRAINING", "UNREACHED", "Trunk"]


class Trunk(nn.Module):
    """Three convolutions and a classifier, and what another network adds to them."""

    aux: Any
    blocks: Any
    norm: Any
    large: Any
    project: Any

    def __init__(self, **others: nn.Module) -> None:
        super().__init__()
        self.first, self.second = nn.Conv2d(3, 8, 3, padding=1), nn.Conv2d(8, 8, 3, padding=1)
        self.third, self.out = nn.Conv2d(8, 12, 3, padding=1), nn.Linear(12, 5)
        for name, module in others.items():
            self.add_module(name, module)

    def features(self, x: Tensor) -> list[Tensor]:
        """Return the results of the convolutions."""
        found = []
        for layer in (self.first, self.second, self.third):
            x = F.relu(layer(x))
            found.append(x)
        return found

    def classes(self, x: Tensor) -> Any:
        """Return the classes of the last convolution's result."""
        return self.out(x.mean((2, 3)))

    def forward(self, x: Tensor) -> Any:
        return self.classes(self.features(x)[2])


class Auxiliary(Trunk):
    """A head on the first features."""

    def __init__(self) -> None:
        super().__init__(aux=nn.Conv2d(8, 5, 1))

    def forward(self, x: Tensor) -> Any:
        first, _, third = self.features(x)
        y = self.classes(third)
        return (y, self.aux(first).mean((2, 3))) if self.training else y


class DeepAuxiliary(Trunk):
    """Heads as those of GoogLeNet and PSPNet, on deep features, with dropout and batch norm."""

    def __init__(self) -> None:
        head = nn.Sequential(
            nn.Conv2d(20, 6, 1), nn.BatchNorm2d(6), nn.ReLU(), nn.Dropout(0.3),
            nn.AdaptiveAvgPool2d(2), nn.Flatten(), nn.Linear(24, 5),
        )  # fmt: skip
        super().__init__(aux=nn.ModuleDict({"inner": head}))

    def forward(self, x: Tensor) -> Any:
        _, second, third = self.features(x)
        found = {"out": self.classes(third)}
        if self.training:
            found["aux"] = self.aux["inner"](torch.cat([second, third], 1))
        return found


class FunctionalHead(Auxiliary):
    """The head's weight is used without the head."""

    def forward(self, x: Tensor) -> Any:
        first, _, third = self.features(x)
        y = self.classes(third)
        if not self.training:
            return y
        return y, F.conv2d(first, self.aux.weight, self.aux.bias).mean((2, 3))


class SharedHead(Auxiliary):
    """The head runs in both modes, on other features."""

    def forward(self, x: Tensor) -> Any:
        first, second, third = self.features(x)
        y = self.classes(third) + self.aux(second).mean((2, 3))
        return (y, self.aux(first).mean((2, 3))) if self.training else y


class BareParameters(Trunk):
    """Parameters without a module."""

    def __init__(self) -> None:
        super().__init__()
        self.scale, self.table = nn.Parameter(torch.rand(8, 1, 1)), nn.Parameter(torch.rand(5, 8))

    def forward(self, x: Tensor) -> Any:
        if not self.training:
            return self.classes(self.features(x)[2])
        first = F.relu(self.first(x)) * self.scale
        y = self.classes(F.relu(self.third(F.relu(self.second(first)))))
        return y, first.mean((2, 3)) @ self.table.t()


class Skipping(Trunk):
    """Layers are left out at random in training mode, without a residual connection."""

    def __init__(self) -> None:
        super().__init__(blocks=nn.ModuleList(nn.Conv2d(8, 8, 3, padding=1) for _ in range(3)))

    def forward(self, x: Tensor) -> Any:
        x = F.relu(self.first(x))
        for block in self.blocks:
            if not self.training or random.random() < 0.5:
                x = F.relu(block(x))
        return self.classes(F.relu(self.third(self.second(x))))


class Choosing(Skipping):
    """One of several layers is chosen at random."""

    def forward(self, x: Tensor) -> Any:
        x = F.relu(self.first(x))
        # Each generator of random numbers, one after the other.
        for chosen in (np.random.randint(3), int(torch.randint(3, ())), random.randrange(3)):
            x = F.relu(self.blocks[chosen](x))
        return self.classes(F.relu(self.third(self.second(x))))


class Noisy(Trunk):
    """Noise and masks in the sizes of features, in training mode."""

    def forward(self, x: Tensor) -> Any:
        x = F.dropout(F.relu(self.first(x)), 0.5, self.training)
        x = F.dropout2d(self.second(x), 0.3, self.training)
        if self.training:
            x = x + 0.1 * torch.randn_like(x) * torch.rand(x.shape)
            x = x * x.new_empty(len(x), 1, 1, 1).bernoulli_(0.8).div_(0.8)
            x = x * F.max_pool2d(torch.empty(*x.shape[:2], 12, 12).bernoulli_(0.8), 3, 1, 1)
        return self.classes(F.relu(self.third(F.alpha_dropout(x, 0.1, self.training))))


class OwnNorm(Trunk):
    """Batch norm by hand, in the mode of the whole network."""

    def __init__(self) -> None:
        super().__init__(norm=nn.BatchNorm2d(8))

    def forward(self, x: Tensor) -> Any:
        one = self.norm
        x = self.second(self.first(x))
        x = F.batch_norm(
            x, one.running_mean, one.running_var, one.weight, one.bias, training=self.training
        )
        return self.classes(F.relu(self.third(x)))


IN_TRAINING: list[type[Trunk]] = [
    Auxiliary, DeepAuxiliary, FunctionalHead, SharedHead, BareParameters, Skipping, Choosing, Noisy,
    OwnNorm,
]  # fmt: skip


class BySize(Trunk):
    """A layer for large images."""

    def __init__(self) -> None:
        super().__init__(large=nn.Conv2d(8, 8, 3, stride=2))

    def forward(self, x: Tensor) -> Any:
        first = F.relu(self.first(x))
        if x.shape[-1] > 20:
            first = self.large(first)
        return self.classes(F.relu(self.third(F.relu(self.second(first)))))


class ByValue(Trunk):
    """A parameter for dark images."""

    def __init__(self) -> None:
        super().__init__()
        self.dark = nn.Parameter(torch.rand(8, 1, 1))

    def forward(self, x: Tensor) -> Any:
        first = F.relu(self.first(x))
        if x.mean() < -1:
            first = first * self.dark
        return self.classes(F.relu(self.third(F.relu(self.second(first)))))


class Encoder(Trunk):
    """A layer that only another method uses."""

    def __init__(self) -> None:
        super().__init__(project=nn.Linear(12, 4))


class Statistics(Trunk):
    """A normalization without parameters, for dark images."""

    def __init__(self) -> None:
        super().__init__(norm=nn.BatchNorm2d(8, affine=False))

    def forward(self, x: Tensor) -> Any:
        first = F.relu(self.first(x))
        if x.mean() < -1:
            first = self.norm(first)
        return self.classes(F.relu(self.third(F.relu(self.second(first)))))


class WithTargets(Auxiliary):
    """Training mode needs another argument, and returns a loss."""

    def forward(self, x: Tensor, targets: Tensor | None = None) -> Any:
        first, _, third = self.features(x)
        y = self.classes(third)
        if not self.training:
            return y
        if targets is None:
            raise ValueError("targets should be passed")
        return F.cross_entropy(y + self.aux(first).mean((2, 3)), targets)


UNREACHED: dict[type[Trunk], str] = {
    BySize: "large", ByValue: "dark", Encoder: "project", Statistics: "norm", WithTargets: "aux",
}  # fmt: skip
