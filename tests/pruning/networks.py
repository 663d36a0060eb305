"""A small residual network and batches for it."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor, nn
from torch.nn import functional as F  # noqa: N812 (its usual name)

__all__ = ["EXAMPLE", "SmallResNet", "batches", "build", "losses"]

EXAMPLE = torch.randn(4, 3, 12, 12, generator=torch.Generator().manual_seed(5))


class SmallResNet(nn.Module):
    """A stem, one residual block, a grouped convolution and a classifier."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Conv2d(3, 8, 3, padding=1)
        self.first = nn.Conv2d(8, 12, 3, padding=1, bias=False)
        self.norm = nn.BatchNorm2d(12)
        self.second = nn.Conv2d(12, 8, 3, padding=1)
        self.grouped = nn.Conv2d(8, 12, 3, groups=2)
        self.head = nn.Linear(12, 5)

    def forward(self, x: Tensor) -> Tensor:
        """Return logits, float [batch, 5]."""
        x = F.relu(self.stem(x))
        x = x + self.second(F.relu(self.norm(self.first(x))))
        x = F.relu(self.grouped(F.relu(x))).mean((2, 3))
        logits: Tensor = self.head(x)
        return logits


def build(seed: int = 0) -> SmallResNet:
    """Return the network with random weights and running statistics."""
    torch.manual_seed(seed)
    model = SmallResNet()
    with torch.no_grad():
        model.norm.running_mean.normal_()  # type: ignore[union-attr]
        model.norm.running_var.uniform_(0.5, 2)  # type: ignore[union-attr]
        model.norm.weight.normal_()
    return model


def batches(count: int = 3) -> Iterator[tuple[Tensor, Tensor]]:
    """Yield images, float32 [4, 3, 12, 12], and labels, int64 [4]."""
    draw = torch.Generator().manual_seed(7)
    for _ in range(count):
        yield torch.randn(4, 3, 12, 12, generator=draw), torch.randint(5, (4,), generator=draw)


def losses(model: nn.Module) -> Iterator[Tensor]:
    """Yield the cross-entropy of each batch."""
    for x, y in batches():
        yield F.cross_entropy(model(x), y)
