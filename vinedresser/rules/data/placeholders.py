"""Numbers among the targets that stand for missing values, such as -999."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from vinedresser.rules.symptom import Symptom

__all__ = ["Placeholder", "Placeholders"]

# Maximum number of targets that are kept, and minimum number of them and of batches.
_MOST, _FEWEST, _BATCHES = 1 << 14, 512, 8
# Minimum number of different other targets: fewer are classes or grades.
_VALUES = 32
# Minimum share of the targets that are the placeholder.
_SHARE = 0.01
# Minimum distance from all other targets, as a multiple of their range.
_APART = 2.0


class Placeholder(NamedTuple):
    """A number that stands for missing targets.

    Attributes:
        value: the number.
        share: its share of the targets.
        low, high: range of all other targets.
    """

    value: float
    share: float
    low: float
    high: float


class Placeholders:
    """The first targets of a loss; bounded memory."""

    def __init__(self) -> None:
        self._kept: list[NDArray[np.float64]] = []
        self._count = self._batches = 0
        # Batches at which to look next.
        self._next = _BATCHES
        self._found: Placeholder | None = None

    def add(self, targets: NDArray[np.float64]) -> None:
        """Process the targets of a batch, [rows, ...]."""
        if self._count >= _MOST:
            return
        self._kept.append(targets.ravel()[: _MOST - self._count])
        self._count += len(self._kept[-1])
        self._batches += 1
        if self._batches >= self._next or self._count >= _MOST:
            self._next *= 2
            self._found = _outside(np.concatenate(self._kept))

    def found(self) -> Placeholder | None:
        """Return the placeholder; None if there is none.

        That is the smallest or largest target, if it occurs often and all others lie together, far
        away. Zero is none: it is what nothing measures as.
        """
        return self._found

    def symptom(self, tensor: str) -> Symptom | None:
        """Return the symptom of a placeholder that is learned; None if there is none.

        Args:
            tensor: full name of the targets.
        """
        found = self._found
        if found is None:
            return None
        return Symptom(
            tensor,
            "share",
            found.share,
            0.0,
            0.9,
            f"{found.share:.0%} of the targets are {found.value:g}, and all others are between "
            f"{found.low:.4g} and {found.high:.4g}",
            "a number that stands for missing values is learned like any other, and outweighs them",
            "leave these targets out of the loss, by a mask or before training",
        )


def _outside(targets: NDArray[np.float64]) -> Placeholder | None:
    values, counts = np.unique(targets, return_counts=True)
    if len(targets) < _FEWEST or len(values) <= _VALUES:
        return None
    for place, others in ((-1, values[:-1]), (0, values[1:])):
        value, share = float(values[place]), float(counts[place] / len(targets))
        low, high = float(others[0]), float(others[-1])
        apart = min(abs(value - low), abs(value - high))
        if value != 0 and share >= _SHARE and apart > _APART * (high - low):
            return Placeholder(value, share, low, high)
    return None
