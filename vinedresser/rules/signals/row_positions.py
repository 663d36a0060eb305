"""Whether the place of a row in its batch says something about the row."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

__all__ = ["RowPositions"]

_Array = NDArray[np.float64]


class RowPositions:
    """The part of the variance of rows that goes with their places in the batch.

    Of each row the mean and the standard deviation of its entries. Rows that were shuffled could as
    well stand elsewhere: the place explains none of their variance. Where a batch is read in the
    wrong order of its axes, a row holds one feature of all rows, and its place says which. The part
    is the intraclass correlation of a one-way analysis of variance, ICC(1) of Shrout and Fleiss
    (Psychol. Bull. 86, 1979).

    Attributes:
        batches: how many were taken in.
    """

    def __init__(self) -> None:
        self.batches = 0
        self._sums: _Array = np.zeros((0, 2))
        self._squares: _Array = np.zeros((0, 2))
        self._offset: _Array = np.zeros(2)

    def add(self, rows: _Array) -> None:
        """Take in a batch, [rows, features]; one of another number of rows is left out."""
        figures = np.stack([rows.mean(1), rows.std(1)], axis=1)
        if not self.batches:
            self._sums, self._squares = np.zeros_like(figures), np.zeros_like(figures)
            # Of numbers far from zero, squares lose their digits.
            self._offset = figures.mean(0)
        if figures.shape != self._sums.shape or not np.isfinite(figures).all():
            return
        self.batches += 1
        self._sums += figures - self._offset
        self._squares += (figures - self._offset) ** 2

    def explained(self) -> float:
        """Return the greater of the two parts, from about 0 to 1; 0 of fewer than two batches."""
        places, batches = len(self._sums), self.batches
        if places < 2 or batches < 2:
            return 0.0
        means = self._sums / batches
        between = batches * means.var(axis=0, ddof=1)
        within = np.maximum(self._squares - batches * means**2, 0).sum(0) / (places * (batches - 1))
        total = between + (batches - 1) * within
        return float(np.max((between - within) / np.where(total > 0, total, np.inf)))
