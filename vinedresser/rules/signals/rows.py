"""The rows of a batch: digests to recognise them, their kind, and how much positions tell."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

__all__ = ["Positions", "RowPositions", "are_tokens", "new_rows", "row_digests", "whole_rows"]

# Minimum length of a row of tokens.
_PLACES = 4

_Array = NDArray[np.float64]


def row_digests(values: NDArray[Any]) -> list[bytes]:
    """Return a digest of 16 bytes for each row; rows with equal bits have equal digests.

    Args:
        values: [rows, ...], any dtype.
    """
    rows = np.ascontiguousarray(values).reshape(len(values), -1)
    return [hashlib.blake2b(row.tobytes(), digest_size=16).digest() for row in rows]


def new_rows(values: NDArray[Any], seen: set[bytes]) -> list[int]:
    """Return the places of the rows, [rows, ...], that were not seen before; they are then."""
    new = []
    for place, digest in enumerate(row_digests(values)):
        if digest not in seen:
            seen.add(digest)
            new.append(place)
    return new


def whole_rows(inputs: Mapping[str, NDArray[Any]]) -> list[bytes]:
    """Return a digest of each row over all inputs; [] if the inputs have no common rows.

    Args:
        inputs: inputs by name, [rows, ...], any dtype.
    """
    if not inputs or len({len(values) if values.ndim else -1 for values in inputs.values()}) > 1:
        return []
    if any(not values.ndim or not values[:1].size for values in inputs.values()):
        return []
    parts = [row_digests(values) for values in inputs.values()]
    return [b"".join(row) for row in zip(*parts, strict=True)]


def are_tokens(values: NDArray[Any]) -> bool:
    """Return whether inputs may be token indices; pixels are bytes or have more axes.

    Args:
        values: inputs, [rows, ...], any dtype.
    """
    return (
        values.ndim == 2
        and values.dtype.kind in "iu"
        and values.dtype.itemsize > 1
        and values.shape[1] >= _PLACES
        and len(values) > 0
    )


class Positions:
    """The share of the variance between rows that their positions in the batch explain.

    For shuffled rows, the position explains nothing. The share is the intraclass correlation of a
    one-way analysis of variance, ICC(1) of Shrout and Fleiss (Psychol. Bull. 86, 1979).

    Attributes:
        batches: number of batches.
    """

    def __init__(self) -> None:
        self.batches = 0
        self._sums: _Array = np.zeros((0, 0))
        self._squares: _Array = np.zeros((0, 0))
        self._offset: _Array = np.zeros(0)

    def add(self, rows: _Array) -> None:
        """Process a batch, float64 [rows, features]; ignore one of another shape."""
        if not self.batches:
            self._sums, self._squares = np.zeros_like(rows), np.zeros_like(rows)
            # Squares of numbers far from zero lose digits.
            self._offset = rows.mean(0)
        if rows.shape != self._sums.shape or not np.isfinite(rows).all():
            return
        self.batches += 1
        self._sums += rows - self._offset
        self._squares += (rows - self._offset) ** 2

    def explained(self) -> float:
        """Return the greatest share of a feature, from about 0 to 1; 0 before two batches."""
        places, batches = len(self._sums), self.batches
        if places < 2 or batches < 2:
            return 0.0
        means = self._sums / batches
        between = batches * means.var(axis=0, ddof=1)
        within = np.maximum(self._squares - batches * means**2, 0).sum(0) / (places * (batches - 1))
        total = between + (batches - 1) * within
        return float(np.max((between - within) / np.where(total > 0, total, np.inf)))


class RowPositions(Positions):
    """The same for rows that are described by the mean and standard deviation of their entries.

    If the axes of a batch are in the wrong order, a row contains one feature of all rows, which its
    position determines.
    """

    def add(self, rows: _Array) -> None:
        """Process a batch, float64 [rows, features]; ignore one with another number of rows."""
        super().add(np.stack([rows.mean(1), rows.std(1)], axis=1))
