"""Data of the recipes, without a network."""

from __future__ import annotations

from pydoc_data.topics import topics

import torch
from sklearn.datasets import load_digits
from torch import Tensor

__all__ = ["characters", "digits"]


def digits(size: int) -> tuple[Tensor, Tensor]:
    """Return scikit-learn's 1,797 digits in random order.

    Args:
        size: edge of the images in pixels; they are enlarged from 8.

    Returns:
        Images with values from 0 to 1, float32 [1797, 1, size, size], and labels, int64 [1797].
    """
    images, labels = load_digits(return_X_y=True)
    order = torch.randperm(len(labels), generator=torch.Generator().manual_seed(0))
    small = torch.tensor(images, dtype=torch.float32).reshape(-1, 1, 8, 8) / 16
    large = torch.nn.functional.interpolate(small, size=(size, size), mode="bilinear")
    return large[order], torch.tensor(labels)[order]


def characters() -> tuple[Tensor, int]:
    """Return the text of Python's language reference as int64 [characters], and the alphabet."""
    text = "".join(topics.values())
    alphabet = {one: number for number, one in enumerate(sorted(set(text)))}
    return torch.tensor([alphabet[one] for one in text]), len(alphabet)
