"""Data of the healthy trainings: sets of scikit-learn, and synthetic ones."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import torch
from sklearn.datasets import make_classification
from torch import Tensor

from tests.rules import trainings

__all__ = ["Split", "batches", "diabetes", "digits", "rare_positives"]


class Split(NamedTuple):
    """Training rows and held-out rows."""

    x: Tensor
    y: Tensor
    x_held: Tensor
    y_held: Tensor


def digits(*, image: bool = False) -> Split:
    """Return 1,797 digits of 8 x 8 pixels from 0 to 1, 1,437 of them for training.

    Args:
        image: as [rows, 1, 8, 8] rather than [rows, 64].
    """
    data = trainings.digits(image=image)
    return Split(data.x, data.y, data.x_eval, data.y_eval)


def diabetes() -> Split:
    """Return 442 patients: ten inputs of unit variance, a target from 25 to 346."""
    data = trainings.diabetes()
    return Split(data.x, data.y, data.x_eval, data.y_eval)


def rare_positives() -> Split:
    """Return 4,000 rows of 20 inputs, 5 % of class 1 (targets are floats)."""
    x, y = make_classification(
        4000, 20, n_informative=8, weights=[0.95], class_sep=1.5, flip_y=0.0, random_state=0
    )
    inputs = torch.tensor(x / x.std(0), dtype=torch.float32)
    targets = torch.tensor(y, dtype=torch.float32)[:, None]
    return Split(inputs[:3000], targets[:3000], inputs[3000:], targets[3000:])


def batches(rows: int, size: int, seed: int) -> Iterator[Tensor]:
    """Yield the row indices of full batches endlessly, each epoch in another order."""
    generator = torch.Generator().manual_seed(seed)
    while True:
        order = torch.randperm(rows, generator=generator)
        yield from (part for part in torch.split(order, size) if len(part) == size)
