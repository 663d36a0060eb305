"""Numbers among the targets that stand for missing values, such as -999."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from vinedresser.rules.symptom import Symptom

# Maximum number of targets that are kept, and minimum number of them and of batches.
_MOST, _FEWEST, _BATCHES = 1 << 14, 512, 8
# Minimum number of different other targets: fewer are classes or grades.
_VALUES = 32
# Minimum share of the targets that are the placeholder.
_SHARE = 0.01
# Minimum distance from all other targets, as a multiple of their range.
_APART = 2.0


class Placeholders:
    """The first targets of a loss; bounded memory.

    A placeholder is the smallest or largest target, if it occurs often and all others lie together,
    far away. Zero is none: it is what nothing measures as.
    """

    def __init__(self) -> None:
        self._kept: list[NDArray[np.float64]] = []
        self._count = self._batches = 0
        # Batches at which to look next.
        self._next = _BATCHES
        # The placeholder, its share, and the range of all other targets.
        self._found: tuple[float, float, float, float] | None = None

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

    def symptom(self, tensor: str) -> Symptom | None:
        """Return the symptom of a placeholder that is learned; None if there is none.

        Args:
            tensor: full name of the targets.
        """
        if self._found is None:
            return None
        value, share, low, high = self._found
        return Symptom(
            tensor,
            "share",
            share,
            0.0,
            0.9,
            f"{share:.0%} of the targets are {value:g}, and all others are between {low:.4g} and "
            f"{high:.4g}",
            "a number that stands for missing values is learned like any other, and outweighs them",
            "leave these targets out of the loss, by a mask or before training",
        )


def _outside(targets: NDArray[np.float64]) -> tuple[float, float, float, float] | None:
    values, counts = np.unique(targets, return_counts=True)
    if len(targets) < _FEWEST or len(values) <= _VALUES:
        return None
    for place, others in ((-1, values[:-1]), (0, values[1:])):
        value, share = float(values[place]), float(counts[place] / len(targets))
        low, high = float(others[0]), float(others[-1])
        apart = min(abs(value - low), abs(value - high))
        if value != 0 and share >= _SHARE and apart > _APART * (high - low):
            return value, share, low, high
    return None
