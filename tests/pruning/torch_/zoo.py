"""Small models of many architectures."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.utils import parametrizations

__all__ = ["ZOO"]


def conv(inputs: int, outputs: int, size: int = 3, groups: int = 1) -> nn.Sequential:
    """Return a convolution with batch norm and ReLU; pixels stay."""
    return nn.Sequential(
        nn.Conv2d(inputs, outputs, size, padding=size // 2, bias=False, groups=groups),
        nn.BatchNorm2d(outputs),
        nn.ReLU(inplace=True),
    )


class Classified(nn.Module):
    """A body of convolutions, a mean over pixels and a classifier."""

    def __init__(self, body: nn.Module, channels: int) -> None:
        super().__init__()
        self.body = body
        self.head = nn.Linear(channels, 5)

    def forward(self, x: Tensor) -> Any:
        return self.head(self.body(x).mean((2, 3)))


class Residual(nn.Module):
    """x + f(x), with a projection of x where f changes its channels."""

    def __init__(self, inner: nn.Module, project: nn.Module | None = None) -> None:
        super().__init__()
        self.inner = inner
        self.project = project

    def forward(self, x: Tensor) -> Any:
        shortcut = x if self.project is None else self.project(x)
        return nn.functional.relu(shortcut + self.inner(x))


def basic(inputs: int, outputs: int) -> Residual:
    inner = nn.Sequential(
        conv(inputs, outputs), nn.Conv2d(outputs, outputs, 3, padding=1), nn.BatchNorm2d(outputs)
    )
    return Residual(inner, nn.Conv2d(inputs, outputs, 1) if inputs != outputs else None)


def bottleneck(inputs: int, inner: int) -> Residual:
    return Residual(
        nn.Sequential(conv(inputs, inner, 1), conv(inner, inner), nn.Conv2d(inner, inputs, 1))
    )


def plain() -> nn.Module:
    return nn.Sequential(
        conv(3, 8), nn.MaxPool2d(2), conv(8, 16), nn.AdaptiveAvgPool2d(1), nn.Flatten(),
        nn.Linear(16, 5),
    )  # fmt: skip


def vgg() -> nn.Module:
    return nn.Sequential(
        conv(3, 8), conv(8, 8), nn.MaxPool2d(2), conv(8, 12), nn.MaxPool2d(2), nn.Flatten(),
        nn.Linear(12 * 4 * 4, 20), nn.ReLU(), nn.Dropout(), nn.Linear(20, 5),
    )  # fmt: skip


def resnet() -> nn.Module:
    return Classified(nn.Sequential(conv(3, 8), basic(8, 8), basic(8, 16), basic(16, 16)), 16)


def resnet_bottleneck() -> nn.Module:
    return Classified(nn.Sequential(conv(3, 16), bottleneck(16, 8), bottleneck(16, 4)), 16)


def resnet_group_norm() -> nn.Module:
    inner = nn.Sequential(nn.Conv2d(16, 16, 3, padding=1), nn.GroupNorm(4, 16), nn.ReLU())
    stem = nn.Sequential(nn.Conv2d(3, 16, 3), nn.GroupNorm(2, 16))
    return Classified(nn.Sequential(stem, Residual(inner), nn.GroupNorm(16, 16)), 16)


class DenseBlock(nn.Module):
    def __init__(self, inputs: int, growth: int, layers: int) -> None:
        super().__init__()
        self.layers = nn.ModuleList(
            nn.Sequential(
                nn.BatchNorm2d(inputs + i * growth),
                nn.ReLU(),
                nn.Conv2d(inputs + i * growth, growth, 3, padding=1),
            )
            for i in range(layers)
        )

    def forward(self, x: Tensor) -> Any:
        for layer in self.layers:
            x = torch.cat([x, layer(x)], 1)
        return x


def densenet() -> nn.Module:
    body = nn.Sequential(conv(3, 8), DenseBlock(8, 4, 3), conv(20, 10, 1), DenseBlock(10, 4, 2))
    return Classified(body, 18)


class InvertedResidual(nn.Module):
    def __init__(self, inputs: int, outputs: int, squeeze: bool = False) -> None:
        super().__init__()
        wide = inputs * 3
        self.expand = conv(inputs, wide, 1)
        self.depthwise = conv(wide, wide, groups=wide)
        self.gate = Gate(wide, 4) if squeeze else nn.Identity()
        self.project = nn.Sequential(nn.Conv2d(wide, outputs, 1), nn.BatchNorm2d(outputs))
        self.same = inputs == outputs

    def forward(self, x: Tensor) -> Any:
        y = self.project(self.gate(self.depthwise(self.expand(x))))
        return x + y if self.same else y


class Gate(nn.Module):
    """Squeeze and excite."""

    def __init__(self, channels: int, inner: int) -> None:
        super().__init__()
        self.down = nn.Linear(channels, inner)
        self.up = nn.Linear(inner, channels)

    def forward(self, x: Tensor) -> Any:
        b, c, _, _ = x.shape
        scale = torch.sigmoid(self.up(nn.functional.relu(self.down(x.mean((2, 3))))))
        return x * scale.view(b, c, 1, 1)


def mobilenet() -> nn.Module:
    body = nn.Sequential(
        conv(3, 8), InvertedResidual(8, 8), InvertedResidual(8, 12), InvertedResidual(12, 12)
    )
    return Classified(body, 12)


def efficientnet() -> nn.Module:
    body = nn.Sequential(
        nn.Conv2d(3, 8, 3), nn.SiLU(), InvertedResidual(8, 8, True), InvertedResidual(8, 12, True)
    )
    return Classified(body, 12)


def squeeze_excite_resnet() -> nn.Module:
    inner = nn.Sequential(conv(12, 12), nn.Conv2d(12, 12, 3, padding=1), Gate(12, 6))
    return Classified(nn.Sequential(conv(3, 12), Residual(inner), basic(12, 8)), 8)


class UNet(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first = conv(3, 8)
        self.second = conv(8, 16)
        self.up = nn.ConvTranspose2d(16, 8, 2, stride=2)
        self.join = conv(16, 8)
        self.head = nn.Conv2d(8, 2, 1)

    def forward(self, x: Tensor) -> Any:
        first = self.first(x)
        second = self.second(nn.functional.max_pool2d(first, 2))
        return self.head(self.join(torch.cat([self.up(second), first], 1)))


class Inception(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.stem = conv(3, 8)
        self.branches = nn.ModuleList(
            [conv(8, 4, 1), nn.Sequential(conv(8, 4, 1), conv(4, 6)), conv(8, 4, 5)]
        )
        self.pooled = conv(8, 4, 1)
        self.last = conv(18, 10)

    def forward(self, x: Tensor) -> Any:
        x = self.stem(x)
        parts = [branch(x) for branch in self.branches]
        parts.append(self.pooled(nn.functional.avg_pool2d(x, 3, 1, 1)))
        return self.last(torch.cat(parts, 1))


def inception() -> nn.Module:
    return Classified(Inception(), 10)


class ShuffleUnit(nn.Module):
    """One half passes; the other is convolved; both are interleaved."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        half = channels // 2
        self.branch = nn.Sequential(
            conv(half, half, 1), conv(half, half, groups=half), conv(half, half, 1)
        )

    def forward(self, x: Tensor) -> Any:
        left, right = x.chunk(2, 1)
        x = torch.cat([left, self.branch(right)], 1)
        b, c, h, w = x.shape
        return x.view(b, 2, c // 2, h, w).transpose(1, 2).reshape(b, c, h, w)


def shufflenet() -> nn.Module:
    return Classified(nn.Sequential(conv(3, 16), ShuffleUnit(16), ShuffleUnit(16), conv(16, 8)), 8)


class ConvNeXtBlock(nn.Module):
    def __init__(self, channels: int) -> None:
        super().__init__()
        self.depthwise = nn.Conv2d(channels, channels, 3, padding=1, groups=channels)
        self.norm = nn.LayerNorm(channels)
        self.up = nn.Linear(channels, 4 * channels)
        self.down = nn.Linear(4 * channels, channels)
        self.scale = nn.Parameter(torch.full((channels,), 0.1))

    def forward(self, x: Tensor) -> Any:
        y = self.norm(self.depthwise(x).permute(0, 2, 3, 1))
        return x + (self.scale * self.down(nn.functional.gelu(self.up(y)))).permute(0, 3, 1, 2)


def convnext() -> nn.Module:
    body = nn.Sequential(nn.Conv2d(3, 8, 4, stride=4), ConvNeXtBlock(8), ConvNeXtBlock(8))
    return Classified(body, 8)


class TwoHeads(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Sequential(conv(3, 8), basic(8, 12))
        self.boxes = nn.Conv2d(12, 4, 1)
        self.classes = nn.Sequential(conv(12, 8), nn.Conv2d(8, 6, 1))

    def forward(self, x: Tensor) -> dict[str, Tensor]:
        x = self.body(x)
        return {"boxes": self.boxes(x), "classes": self.classes(x)}


def shared() -> nn.Module:
    block = basic(12, 12)
    return Classified(nn.Sequential(conv(3, 12), block, block, block, conv(12, 8)), 8)


def super_resolution() -> nn.Module:
    return nn.Sequential(
        conv(3, 8), nn.Conv2d(8, 32, 3, padding=1), nn.PixelShuffle(2), conv(8, 8),
        nn.Conv2d(8, 3 * 4, 3, padding=1), nn.PixelShuffle(2),
    )  # fmt: skip


def weight_norm() -> nn.Module:
    layers = [nn.Conv2d(3, 8, 3), nn.Conv2d(8, 12, 3), nn.Conv2d(12, 8, 3)]
    body = nn.Sequential(*(parametrizations.weight_norm(layer) for layer in layers))
    return Classified(body, 8)


def resnext() -> nn.Module:
    inner = nn.Sequential(conv(16, 16, 1), conv(16, 16, groups=4), nn.Conv2d(16, 16, 1))
    return Classified(nn.Sequential(conv(3, 16), Residual(inner)), 16)


class Res2Net(nn.Module):
    """Parts of the channels pass one convolution after the other."""

    def __init__(self, channels: int, width: int) -> None:
        super().__init__()
        self.width = width
        self.first = conv(channels, channels, 1)
        self.convs = nn.ModuleList([conv(width, width) for _ in range(channels // width - 1)])
        self.last = nn.Conv2d(channels, channels, 1)

    def forward(self, x: Tensor) -> Any:
        parts = torch.split(self.first(x), self.width, 1)
        found = [parts[0]]
        for part, layer in zip(parts[1:], self.convs, strict=True):
            found.append(layer(part + found[-1]))
        return x + self.last(torch.cat(found, 1))


def res2net() -> nn.Module:
    return Classified(nn.Sequential(conv(3, 16), Res2Net(16, 4), Res2Net(16, 8)), 16)


class Padded(nn.Module):
    """A shortcut without weights: channels that are missing are 0."""

    def __init__(self, inputs: int, outputs: int) -> None:
        super().__init__()
        self.inner = nn.Sequential(conv(inputs, outputs), nn.Conv2d(outputs, outputs, 3, 1, 1))
        self.missing = outputs - inputs

    def forward(self, x: Tensor) -> Any:
        return self.inner(x) + nn.functional.pad(x, (0, 0, 0, 0, 0, self.missing))


def padded_resnet() -> nn.Module:
    return Classified(nn.Sequential(conv(3, 16), Padded(16, 20), basic(20, 20)), 20)


class NonLocal(nn.Module):
    """Attention between pixels; the number of inner channels is an attribute."""

    def __init__(self, channels: int, inner: int) -> None:
        super().__init__()
        self.inner = inner
        self.q, self.k, self.v = (nn.Conv2d(channels, inner, 1, bias=False) for _ in range(3))
        vars(self.q)["read_by_product"] = True
        self.out = nn.Conv2d(inner, channels, 1)

    def forward(self, x: Tensor) -> Any:
        n, _, h, w = x.shape
        q, k, v = (layer(x).view(n, self.inner, -1) for layer in (self.q, self.k, self.v))
        y = v @ torch.softmax(k.transpose(1, 2) @ q, 1)
        return x + self.out(y.view(n, self.inner, h, w))


def non_local() -> nn.Module:
    return Classified(nn.Sequential(conv(3, 8), NonLocal(8, 6), conv(8, 8)), 8)


ZOO: dict[str, Callable[[], nn.Module]] = {
    "plain": plain,
    "VGG": vgg,
    "ResNet": resnet,
    "ResNet with bottlenecks": resnet_bottleneck,
    "ResNet with group norm": resnet_group_norm,
    "ResNeXt": resnext,
    "DenseNet": densenet,
    "MobileNetV2": mobilenet,
    "EfficientNet": efficientnet,
    "SE-ResNet": squeeze_excite_resnet,
    "U-Net": UNet,
    "Inception": inception,
    "ShuffleNet": shufflenet,
    "ConvNeXt": convnext,
    "Res2Net": res2net,
    "ResNet, padded shortcut": padded_resnet,
    "non-local": non_local,
    "two heads": TwoHeads,
    "shared block": shared,
    "super-resolution": super_resolution,
    "weight norm": weight_norm,
}
"""Models of 3 channels and 16 x 16 pixels."""
