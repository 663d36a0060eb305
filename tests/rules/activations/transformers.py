"""Small transformers whose attention collapses, and their healthy twins."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path

import torch
from torch import Tensor, nn
from torch.nn import functional as F  # noqa: N812 (its usual name)

from vinedresser.capture.hook.hook import Hook
from vinedresser.rules.base import Rule, capture_for
from vinedresser.store.reading.reader import Run, open_run

__all__ = ["Task", "Transformer", "digits_of", "marked", "trained"]

_WIDTH, _HEADS, _TOKENS = 32, 4, 10

Rows = Callable[[torch.Generator], tuple[Tensor, Tensor]]


class Block(nn.Module):
    """Attention and a feed-forward network, each after a norm."""

    def __init__(self, scale: float) -> None:
        super().__init__()
        self.project = nn.Linear(_WIDTH, 3 * _WIDTH)
        self.mix = nn.Linear(_WIDTH, _WIDTH)
        self.norms = nn.ModuleList(nn.LayerNorm(_WIDTH) for _ in range(2))
        self.feed = nn.Sequential(
            nn.Linear(_WIDTH, 2 * _WIDTH), nn.GELU(), nn.Linear(2 * _WIDTH, _WIDTH)
        )
        self.scale = scale / math.sqrt(_WIDTH // _HEADS)

    def forward(self, x: Tensor) -> Tensor:
        parts = self.project(self.norms[0](x)).chunk(3, -1)
        q, k, v = (part.unflatten(-1, (_HEADS, -1)).transpose(1, 2) for part in parts)
        attended = F.scaled_dot_product_attention(q, k, v, scale=self.scale)
        x = x + self.mix(attended.transpose(1, 2).flatten(2))
        out: Tensor = x + self.feed(self.norms[1](x))
        return out


class Transformer(nn.Module):
    """Two blocks, and a class from their first token or from the mean of all.

    Args:
        embed: embedding of the tokens.
        length: number of tokens.
        scale: factor of the scores, besides one over the root of the head's width.
        first: read the first token.
    """

    def __init__(self, embed: nn.Module, length: int, *, scale: float, first: bool) -> None:
        super().__init__()
        self.embed = embed
        self.places = nn.Parameter(0.5 * torch.randn(length, _WIDTH))
        self.blocks = nn.Sequential(Block(scale), Block(scale))
        self.norm = nn.LayerNorm(_WIDTH)
        self.head = nn.Linear(_WIDTH, _TOKENS)
        self.first = first

    def forward(self, x: Tensor) -> Tensor:
        states = self.norm(self.blocks(self.embed(x) + self.places))
        out: Tensor = self.head(states[:, 0] if self.first else states.mean(1))
        return out


def marked(generator: torch.Generator) -> tuple[Tensor, Tensor]:
    """Return shuffled tokens, each followed by a flag, and the flagged token.

    Each row has all tokens, so that the mean over the row says nothing.
    """
    order = torch.stack([torch.randperm(_TOKENS, generator=generator) for _ in range(64)])
    place = torch.randint(0, _TOKENS, (64,), generator=generator)
    flags = torch.full_like(order, _TOKENS)
    flags[torch.arange(64), place] = _TOKENS + 1
    return torch.stack([order, flags], 2).flatten(1), order[torch.arange(64), place]


def digits_of(pixels: Tensor, labels: Tensor) -> Rows:
    """Return a function that draws digits, eight tokens of eight pixels each."""

    def draw(generator: torch.Generator) -> tuple[Tensor, Tensor]:
        chosen = torch.randint(0, len(pixels), (64,), generator=generator)
        return pixels[chosen].reshape(-1, 8, 8), labels[chosen]

    return draw


@dataclass
class Task:
    """A training.

    Attributes:
        rows: draws a batch.
        embed: returns the embedding.
        length: number of tokens.
        rate: learning rate of Adam.
        scale: see `Transformer`.
        steps: optimizer steps.
        first: see `Transformer`.
    """

    rows: Rows = marked
    embed: Callable[[], nn.Module] = field(
        default=lambda: nn.Embedding(_TOKENS + 2, _WIDTH), repr=False
    )
    length: int = 2 * _TOKENS
    rate: float = 2e-3
    scale: float = 1.0
    steps: int = 600
    first: bool = True


def trained(directory: Path, task: Task, rules: Iterable[Rule]) -> Run:
    """Train with capture for some rules, and return the run."""
    torch.manual_seed(0)
    torch.set_num_threads(1)
    generator = torch.Generator().manual_seed(1)
    model = Transformer(task.embed(), task.length, scale=task.scale, first=task.first)
    optimizer, loss = torch.optim.Adam(model.parameters(), lr=task.rate), nn.CrossEntropyLoss()
    collections = capture_for(rules).collections
    with Hook(directory, collections=collections, total_steps=task.steps) as hook:
        hook.watch(model, loss=loss, optimizer=optimizer)
        for _ in range(task.steps):
            x, y = task.rows(generator)
            optimizer.zero_grad()
            loss(model(x), y).backward()
            optimizer.step()
    return open_run(directory)
