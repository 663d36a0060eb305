"""Small models with attention, and such as mix tokens."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

__all__ = ["ZOO"]


class Attention(nn.Module):
    """Attention with separate or fused projections; the sizes of heads are attributes."""

    def __init__(self, width: int, heads: int, *, fused: bool, by_hand: bool) -> None:
        super().__init__()
        self.heads = heads
        self.units = width // heads
        self.fused = fused
        self.by_hand = by_hand
        if fused:
            self.qkv = nn.Linear(width, 3 * width)
        else:
            self.q, self.k, self.v = (nn.Linear(width, width) for _ in range(3))
        self.out = nn.Linear(width, width)

    def forward(self, x: Tensor) -> Any:
        b, t, _ = x.shape
        if self.fused:
            parts = self.qkv(x).reshape(b, t, 3, self.heads, self.units)
            q, k, v = parts.permute(2, 0, 3, 1, 4).unbind(0)
        else:
            q, k, v = (
                layer(x).view(b, t, -1, self.units).transpose(1, 2)
                for layer in (self.q, self.k, self.v)
            )
        if self.by_hand:
            y = (q @ k.transpose(-2, -1) * self.units**-0.5).softmax(-1) @ v
        else:
            y = nn.functional.scaled_dot_product_attention(q, k, v)
        return self.out(y.transpose(1, 2).flatten(2))


class EncoderBlock(nn.Module):
    def __init__(self, width: int, attention: nn.Module) -> None:
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.attention = attention
        self.mlp = nn.Sequential(
            nn.Linear(width, 2 * width), nn.GELU(), nn.Linear(2 * width, width)
        )

    def forward(self, x: Tensor) -> Any:
        x = x + self.attention(self.norm1(x))
        return x + self.mlp(self.norm2(x))


class ViT(nn.Module):
    def __init__(self, width: int, blocks: list[nn.Module]) -> None:
        super().__init__()
        self.patches = nn.Conv2d(3, width, 4, stride=4)
        self.token = nn.Parameter(torch.randn(1, 1, width))
        self.position = nn.Parameter(torch.randn(1, 17, width))
        self.blocks = nn.Sequential(*blocks)
        self.norm = nn.LayerNorm(width)
        self.head = nn.Linear(width, 5)

    def forward(self, x: Tensor) -> Any:
        x = self.patches(x).flatten(2).transpose(1, 2)
        x = torch.cat([self.token.expand(x.shape[0], -1, -1), x], 1) + self.position
        return self.head(self.norm(self.blocks(x))[:, 0])


def vit(*, fused: bool, by_hand: bool) -> nn.Module:
    blocks: list[nn.Module] = [
        EncoderBlock(16, Attention(16, 4, fused=fused, by_hand=by_hand)) for _ in range(2)
    ]
    return ViT(16, blocks)


class MixerBlock(nn.Module):
    def __init__(self, tokens: int, width: int) -> None:
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.tokens = nn.Sequential(nn.Linear(tokens, 24), nn.GELU(), nn.Linear(24, tokens))
        self.channels = nn.Sequential(nn.Linear(width, 32), nn.GELU(), nn.Linear(32, width))

    def forward(self, x: Tensor) -> Any:
        x = x + self.tokens(self.norm1(x).transpose(1, 2)).transpose(1, 2)
        return x + self.channels(self.norm2(x))


class Mixer(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.patches = nn.Conv2d(3, 16, 4, stride=4)
        self.blocks = nn.Sequential(MixerBlock(16, 16), MixerBlock(16, 16))
        self.head = nn.Linear(16, 5)

    def forward(self, x: Tensor) -> Any:
        return self.head(self.blocks(self.patches(x).flatten(2).transpose(1, 2)).mean(1))


class GroupedQueries(nn.Module):
    """Attention with fewer keys than queries, and positions by rotation."""

    def __init__(self, width: int, heads: int, key_heads: int) -> None:
        super().__init__()
        self.heads, self.key_heads, self.units = heads, key_heads, width // heads
        self.q = nn.Linear(width, width, bias=False)
        self.k, self.v = (nn.Linear(width, key_heads * self.units) for _ in range(2))
        self.out = nn.Linear(width, width)

    def rotated(self, x: Tensor) -> Tensor:
        angles = torch.arange(x.shape[2])[:, None] / (1 + torch.arange(self.units // 2))
        cos, sin = (torch.cat([one, one], -1) for one in (angles.cos(), angles.sin()))
        left, right = x.chunk(2, -1)
        return x * cos + torch.cat([-right, left], -1) * sin

    def forward(self, x: Tensor) -> Any:
        b, t, _ = x.shape
        q = self.rotated(self.q(x).view(b, t, self.heads, self.units).transpose(1, 2))
        k, v = (
            layer(x).view(b, t, self.key_heads, self.units).transpose(1, 2)
            for layer in (self.k, self.v)
        )
        times = self.heads // self.key_heads
        k, v = (one.repeat_interleave(times, 1) for one in (self.rotated(k), v))
        y = nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        return self.out(y.transpose(1, 2).reshape(b, t, -1))


class Window(nn.Module):
    """Attention within shifted windows of a row of tokens, with a bias for relative positions."""

    relative: Tensor

    def __init__(self, width: int, heads: int, size: int) -> None:
        super().__init__()
        self.heads, self.size = heads, size
        self.qkv = nn.Linear(width, 3 * width)
        self.out = nn.Linear(width, width)
        self.table = nn.Parameter(torch.randn(2 * size - 1, heads))
        places = torch.arange(size)
        self.register_buffer("relative", places[:, None] - places + size - 1)

    def forward(self, x: Tensor) -> Any:
        b, t, _ = x.shape
        rows = torch.roll(x, -1, 1)[:, : t // self.size * self.size]
        windows = rows.reshape(-1, self.size, x.shape[-1])
        n = windows.shape[0]
        q, k, v = (
            part.reshape(n, self.size, self.heads, -1).transpose(1, 2)
            for part in self.qkv(windows).chunk(3, -1)
        )
        bias = self.table[self.relative.view(-1)].view(self.size, self.size, -1).permute(2, 0, 1)
        y = ((q * 0.3) @ k.transpose(-2, -1) + bias).softmax(-1) @ v
        y = self.out(y.transpose(1, 2).flatten(2)).reshape(b, rows.shape[1], -1)
        return torch.cat([y, x[:, rows.shape[1] :]], 1).roll(1, 1)


ZOO: dict[str, Callable[[], nn.Module]] = {
    "ViT": lambda: vit(fused=False, by_hand=False),
    "ViT, attention by hand": lambda: vit(fused=False, by_hand=True),
    "ViT, fused": lambda: vit(fused=True, by_hand=False),
    "ViT, fused, attention by hand": lambda: vit(fused=True, by_hand=True),
    "grouped queries": lambda: ViT(16, [EncoderBlock(16, GroupedQueries(16, 4, 2))]),
    "windows": lambda: ViT(16, [EncoderBlock(16, Window(16, 2, 4)) for _ in range(2)]),
    "Mixer": Mixer,
}
"""Models of 3 channels and 16 x 16 pixels."""
