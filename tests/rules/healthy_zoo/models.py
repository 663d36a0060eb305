"""The networks of several healthy trainings."""

from __future__ import annotations

from collections.abc import Callable

from torch import Tensor, nn

from tests.rules.trainings import mlp

__all__ = ["ResNet", "cnn", "perceptron"]


def perceptron(*widths: int, activation: Callable[[], nn.Module] = nn.ReLU) -> nn.Sequential:
    """Return a multilayer perceptron with an activation between its layers."""
    network = mlp(*widths, activation=activation)()
    assert isinstance(network, nn.Sequential)
    return network


def cnn(*, dropout: float = 0.0) -> nn.Sequential:
    """Return a small convolutional network for [rows, 1, 8, 8]."""
    return nn.Sequential(
        nn.Conv2d(1, 8, 3, padding=1),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Conv2d(8, 16, 3, padding=1),
        nn.ReLU(),
        nn.Flatten(),
        nn.Dropout(dropout),
        nn.Linear(256, 10),
    )


class _Block(nn.Module):
    """Two convolutions with batch normalisation and a skip connection (He et al., 2016)."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(channels, channels, 3, padding=1, bias=False)
        self.bn1 = nn.BatchNorm2d(channels)
        self.conv2 = nn.Conv2d(channels, channels, 3, padding=1, bias=False)
        self.bn2 = nn.BatchNorm2d(channels)
        self.relu = nn.ReLU(inplace=True)

    def forward(self, x: Tensor) -> Tensor:
        inner = self.bn2(self.conv2(self.relu(self.bn1(self.conv1(x)))))
        out: Tensor = self.relu(inner + x)
        return out


class ResNet(nn.Module):
    """A stem, two residual blocks, and a head on the mean over all pixels."""

    def __init__(self, channels: int = 12) -> None:
        super().__init__()
        self.stem = nn.Sequential(
            nn.Conv2d(1, channels, 3, padding=1, bias=False), nn.BatchNorm2d(channels), nn.ReLU()
        )
        self.blocks = nn.Sequential(_Block(channels), nn.MaxPool2d(2), _Block(channels))
        self.head = nn.Linear(channels, 10)

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.head(self.blocks(self.stem(x)).mean((2, 3)))
        return out
