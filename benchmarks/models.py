"""Models of the benchmarks, small enough for two cores.

Shape legend: B batch, C channels, H and W height and width, F features.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import nn

__all__ = ["MODELS", "Task", "mlp", "resnet18"]


class Block(nn.Module):
    """A basic residual block with the same in-place operations as torchvision.

    Args:
        inner: input channels.
        outer: output channels.
        stride: stride of the first convolution.
    """

    def __init__(self, inner: int, outer: int, stride: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(inner, outer, 3, stride, padding=1, bias=False)
        self.bn1 = nn.BatchNorm2d(outer)
        self.relu = nn.ReLU(inplace=True)
        self.conv2 = nn.Conv2d(outer, outer, 3, padding=1, bias=False)
        self.bn2 = nn.BatchNorm2d(outer)
        self.shortcut: nn.Module = nn.Identity()
        if stride != 1 or inner != outer:
            self.shortcut = nn.Sequential(
                nn.Conv2d(inner, outer, 1, stride, bias=False), nn.BatchNorm2d(outer)
            )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Map [B, C, H, W] to [B, outer, H / stride, W / stride]."""
        y: torch.Tensor = self.bn2(self.conv2(self.relu(self.bn1(self.conv1(x)))))
        y += self.shortcut(x)
        out: torch.Tensor = self.relu(y)
        return out


def resnet18(width: int = 32, classes: int = 10) -> nn.Sequential:
    """Return a ResNet-18 for images of 32 x 32 (3 x 3 stem, no pooling).

    Args:
        width: channels of the first stage; usually 64, while 32 gives 2.8 M parameters.
        classes: number of classes.
    """
    layers: list[nn.Module] = [
        nn.Conv2d(3, width, 3, padding=1, bias=False),
        nn.BatchNorm2d(width),
        nn.ReLU(inplace=True),
    ]
    inner = width
    for stage in range(4):
        outer = width << stage
        layers += [Block(inner, outer, 2 if stage else 1), Block(outer, outer, 1)]
        inner = outer
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(inner, classes))


def mlp(inputs: int, width: int, depth: int, classes: int = 10) -> nn.Sequential:
    """Return a multilayer perceptron with ReLU.

    Args:
        inputs: F of the input [B, F].
        width: width of the hidden layers.
        depth: number of linear layers.
        classes: number of classes.
    """
    layers: list[nn.Module] = [nn.Linear(inputs, width)]
    for _ in range(depth - 2):
        layers += [nn.ReLU(), nn.Linear(width, width)]
    return nn.Sequential(*layers, nn.ReLU(), nn.Linear(width, classes))


@dataclass(frozen=True)
class Task:
    """A model to train, with a batch of random data.

    Attributes:
        make: returns the model.
        shape: input shape [B, ...].
        steps: optimizer steps per timed block.
        about: description for the headline.
    """

    make: Callable[[], nn.Module]
    shape: tuple[int, ...]
    steps: int
    about: str


MODELS = {
    "resnet": Task(resnet18, (16, 3, 32, 32), 10, "ResNet-18, width 32, batch 16 of 32 x 32"),
    "mlp": Task(lambda: mlp(784, 256, 8), (128, 784), 100, "8 linear layers of 256, batch 128"),
    "tiny": Task(lambda: mlp(20, 32, 3), (16, 20), 500, "3 linear layers of 32, batch 16"),
}
