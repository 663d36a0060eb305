"""Layers that break other tools, for networks that are drawn at random."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.utils import parametrizations, parametrize

from tests.pruning.torch_.plain_steps import PIXELS, Applied, Builder

__all__ = ["NASTY"]


def channel_shuffle(b: Builder) -> None:
    read = b.recent()

    def shuffled(_: Applied, x: Tensor) -> Any:
        n, c, h, w = x.shape
        return x.view(n, 2, c // 2, h, w).transpose(1, 2).reshape(n, c, h, w)

    b.apply([read], b.channels[read], shuffled)


def tied(b: Builder) -> None:
    read = b.recent()
    conv = nn.Conv2d(b.channels[read], b.width(), 3, padding=1)
    vars(conv)["tied"] = True
    inner = b.apply([read], conv.out_channels, lambda s, x: torch.relu(s.conv(x)), conv=conv)
    b.apply(
        [inner],
        conv.in_channels,
        lambda s, x: nn.functional.conv_transpose2d(x, s.conv.weight, padding=1),
        conv=conv,
    )


def functional(b: Builder) -> None:
    read = b.recent()
    channels = b.channels[read]
    groups = channels if b.random.random() < 0.3 else 1
    conv = nn.Conv2d(channels, channels if groups > 1 else b.width(), 3, groups=groups)
    b.apply(
        [read],
        conv.out_channels,
        lambda s, x: nn.functional.conv2d(
            x, s.conv.weight, s.conv.bias, padding=1, groups=s.conv.groups
        ),
        conv=conv,
    )


def raw_parameter(b: Builder) -> None:
    read = b.recent()
    width = b.width()
    kernel = nn.Parameter(torch.randn(width, b.channels[read], 1, 1))
    b.apply([read], width, lambda s, x: nn.functional.conv2d(x, s.kernel).relu(), kernel=kernel)


class Doubled(nn.Module):
    """A parametrisation."""

    def forward(self, x: Tensor) -> Any:
        return x + torch.tanh(x)


def parametrised(b: Builder) -> None:
    read = b.recent()
    conv = nn.Conv2d(b.channels[read], b.width(), 3, padding=1)
    if b.random.random() < 0.5:
        parametrizations.weight_norm(conv)
    else:
        parametrize.register_parametrization(conv, "weight", Doubled())
    b.apply([read], conv.out_channels, lambda s, x: s.conv(x).relu(), conv=conv)


def buffers(b: Builder) -> None:
    read = b.recent()
    channels = b.channels[read]
    b.apply(
        [read],
        channels,
        lambda s, x: x * s.scale.view(1, -1, 1, 1) + s.shift,
        scale=torch.rand(channels),
        shift=torch.rand(channels, 1, 1),
    )


def constant_view(b: Builder) -> None:
    inner = b.conv(b.recent(), 12)
    b.apply([inner], 12, lambda _, x: x.reshape(-1, 12, PIXELS, PIXELS) * 2)


def constant_slice(b: Builder) -> None:
    whole = b.conv(b.recent(), 24)
    b.conv(b.apply([whole], 8, lambda _, x: x[:, :8]), 8)
    b.conv(b.apply([whole], 16, lambda _, x: x[:, 8:]), 8)


def constant_split(b: Builder) -> None:
    whole = b.conv(b.recent(), 16)
    b.apply([whole], 8, lambda _, x: sum(x.split([8, 8], 1)))


def attention(b: Builder) -> None:
    """q, k, v are separate; the number of heads is an attribute or follows from their size."""
    read = b.recent()
    channels = b.channels[read]
    by_hand = b.random.random() < 0.5

    def attended(s: Any, x: Tensor) -> Any:
        n, _, h, w = x.shape
        tokens = x.flatten(2).transpose(1, 2)
        q, k, v = (
            layer(tokens).view(n, h * w, s.heads, -1 if by_hand else 4).transpose(1, 2)
            for layer in (s.q, s.k, s.v)
        )
        if by_hand:
            y = (q @ k.transpose(-2, -1) / 2).softmax(-1) @ v
        else:
            y = nn.functional.scaled_dot_product_attention(q, k, v)
        return x + s.out(y.transpose(1, 2).flatten(2)).transpose(1, 2).reshape(n, -1, h, w)

    layers = {name: nn.Linear(channels, 12) for name in "qkv"}
    b.apply([read], channels, attended, out=nn.Linear(12, channels), **layers)
    vars(b.steps[-1])["heads"] = 3


def fused_attention(b: Builder) -> None:
    read = b.recent()
    channels = b.channels[read]

    def attended(s: Any, x: Tensor) -> Any:
        n, _, h, w = x.shape
        tokens = x.flatten(2).transpose(1, 2)
        q, k, v = s.qkv(tokens).reshape(n, h * w, 3, s.heads, 4).permute(2, 0, 3, 1, 4)
        y = nn.functional.scaled_dot_product_attention(q, k, v)
        return s.out(y.transpose(1, 2).flatten(2)).transpose(1, 2).unflatten(2, (h, w))

    b.apply([read], channels, attended, qkv=nn.Linear(channels, 36), out=nn.Linear(12, channels))
    vars(b.steps[-1])["heads"] = 3


def group_norm(b: Builder) -> None:
    read = b.recent()
    channels = b.channels[read]
    groups = [1, 2, 4, channels][b.random.integers(4)]
    b.apply([read], channels, lambda s, x: s.norm(x).relu(), norm=nn.GroupNorm(groups, channels))


def layer_norm(b: Builder) -> None:
    read = b.recent()
    channels = b.channels[read]

    def normal(s: Any, x: Tensor) -> Any:
        y = s.down(torch.relu(s.up(s.norm(x.permute(0, 2, 3, 1)))))
        return x + y.permute(0, 3, 1, 2)

    layers = {"up": nn.Linear(channels, 16), "down": nn.Linear(16, channels)}
    b.apply([read], channels, normal, norm=nn.LayerNorm(channels), **layers)


def pixel_shuffle(b: Builder) -> None:
    inner = b.conv(b.recent(), 32)
    b.apply([inner], 8, lambda _, x: nn.functional.pixel_shuffle(x, 2)[:, :, ::2, ::2])


def gated(b: Builder) -> None:
    inner = b.conv(b.recent(), 16)
    b.apply([inner], 8, lambda _, x: nn.functional.glu(x, 1))


def spatial_attention(b: Builder) -> None:
    """A maximum over channels: they are locked."""
    inner = b.conv(b.recent(), 8)
    b.apply([inner], 8, lambda _, x: x * x.amax(1, keepdim=True).sigmoid())
    b.conv(len(b.steps), b.width())


def grouped_after_concatenation(b: Builder) -> None:
    one, other = b.conv(b.recent(), 12), b.conv(b.recent(), 4)
    joined = b.apply([one, other], 16, lambda _, x, y: torch.cat([x, y], 1))
    b.conv(joined, 16, groups=2)


def written_in_place(b: Builder) -> None:
    """A part of a new tensor is written: its channels are locked."""
    inner = b.conv(b.recent(), 8)

    def written(_: Applied, x: Tensor) -> Any:
        padded = torch.zeros_like(torch.cat([x, x], 1))
        padded[:, :8] = x
        return padded

    b.conv(b.apply([inner], 16, written), b.width())


def leaky(b: Builder) -> None:
    read = b.recent()
    b.apply([read], b.channels[read], lambda s, x: s.leak(x), leak=nn.PReLU(b.channels[read]))


NASTY: list[Callable[[Builder], None]] = [
    channel_shuffle, tied, functional, raw_parameter, parametrised, buffers, constant_view,
    constant_slice, constant_split, attention, fused_attention, group_norm, layer_norm,
    pixel_shuffle, gated, spatial_attention, grouped_after_concatenation, written_in_place, leaky,
]  # fmt: skip
