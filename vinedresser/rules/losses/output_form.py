"""What the outputs that a loss is given look like: probabilities, their logarithms, or numbers."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

__all__ = ["OutputForm", "output_form"]

# A row of float32 probabilities sums to one, and one of their logarithms to zero, this closely.
_ROUNDING = 1e-3
# Outputs of a network that is dead differ by less, those of a sigmoid that learns by more.
_LIVELY = 0.5


class OutputForm(NamedTuple):
    """What is true of all rows of some outputs.

    Attributes:
        width: entries of a row's last axis; 1 for [rows].
        lowest: of all entries.
        highest: of all entries.
        shares: each row sums to one, and no entry is negative: a softmax was put on them.
        logarithms: the exponentials of each row sum to one.
        ones: there is one entry a row, and it is 1: a softmax over one unit.
        zeros: the share of entries that are exactly zero.
    """

    width: int
    lowest: float
    highest: float
    shares: bool
    logarithms: bool
    ones: bool
    zeros: float

    @property
    def between(self) -> bool:
        """All entries are numbers from 0 to 1."""
        return self.lowest >= 0 and self.highest <= 1 + _ROUNDING

    @property
    def lively(self) -> bool:
        """The entries differ: what lies between 0 and 1 does not because all are the same."""
        return self.highest - self.lowest > _LIVELY


def output_form(predictions: NDArray[np.float64]) -> OutputForm | None:
    """Return what outputs look like; None where they are empty or not finite.

    Args:
        predictions: [rows, ..., classes] or [rows].
    """
    if not predictions.size or not np.isfinite(predictions).all():
        return None
    width = predictions.shape[-1] if predictions.ndim > 1 else 1
    several = width > 1
    lowest, highest = float(predictions.min()), float(predictions.max())
    sums = predictions.sum(-1) if several else np.zeros(1)
    exponentials = np.exp(np.minimum(predictions, 1)).sum(-1) if several else np.zeros(1)
    return OutputForm(
        width,
        lowest,
        highest,
        shares=several and lowest >= 0 and bool((abs(sums - 1) < _ROUNDING).all()),
        logarithms=several and highest < _ROUNDING and bool((abs(exponentials - 1) < 1e-2).all()),
        ones=not several and lowest == highest == 1,
        zeros=float((predictions == 0).mean()),
    )
