"""Sequences of tokens whose class is the kind of most of their tokens."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.utils.data import Dataset

__all__ = ["Sequences"]


class Sequences(Dataset[dict[str, Tensor]]):
    """Sequences of 8 tokens from 1 to 36; those of a class have five or more tokens of its kind.

    Args:
        count: number of sequences.
        seed: seed of the draw.
    """

    def __init__(self, count: int, seed: int) -> None:
        drawn = torch.Generator().manual_seed(seed)
        self.labels = torch.randint(0, 3, (count,), generator=drawn)
        tokens = torch.randint(0, 36, (count, 8), generator=drawn)
        own = 12 * self.labels[:, None] + torch.randint(0, 12, (count, 5), generator=drawn)
        tokens[:, :5] = own
        order = torch.rand(count, 8, generator=drawn).argsort(1)
        self.tokens = 1 + tokens.gather(1, order)

    def __len__(self) -> int:
        return len(self.labels)

    def __getitem__(self, place: int) -> dict[str, Tensor]:
        return {"input_ids": self.tokens[place], "labels": self.labels[place]}
