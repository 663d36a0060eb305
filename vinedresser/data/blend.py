"""How many records of each class the batches of a mixture have, a pure function of the weights."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Mapping
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from vinedresser.errors import ConfigError

__all__ = ["Blend", "Drawn", "History"]


class Drawn(NamedTuple):
    """The records of a batch.

    Attributes:
        first: how many records of each class its lane had before, int64, (classes,).
        counts: number of records of each class, int64, (classes,).
    """

    first: NDArray[np.int64]
    counts: NDArray[np.int64]


class Blend:
    """Draws batch after batch: each class gets the records that it lacks most.

    A class lacks what its share of all batches of a lane so far is more than it got there: always
    less than two records, and without lanes less than one. So each lane has the mix of the weights,
    and goes through its own part of each class.

    Args:
        batch: number of the next batch; batch b is in lane b % lanes.
        counts: how many records of each class each lane had, int64, (lanes, classes).
        lacking: records that each class lacks in each lane, float64, (lanes, classes).
    """

    def __init__(
        self,
        size: int,
        batch: int,
        counts: NDArray[np.int64],
        lacking: NDArray[np.float64],
    ) -> None:
        self.size = size
        self.batch = batch
        self.counts = counts
        self.lacking = lacking

    @classmethod
    def begin(cls, size: int, lanes: int, classes: int) -> Blend:
        """Return the beginning, at which no lane has had a record."""
        # Else a rare class would come in all lanes at once, and then in none for a while.
        phases = (np.arange(lanes)[:, None] + np.arange(classes)) % lanes / lanes
        lacking = phases - phases.mean(1, keepdims=True)
        return cls(size, 0, np.zeros((lanes, classes), np.int64), lacking)

    def copy(self) -> Blend:
        """Return a copy that draws on its own."""
        return Blend(self.size, self.batch, self.counts.copy(), self.lacking.copy())

    def draw(self, weights: NDArray[np.float64]) -> Drawn:
        """Draw the next batch.

        Args:
            weights: weights of the classes, at least 0, not all 0, float64, (classes,).
        """
        lane = self.batch % len(self.counts)
        # A class without weight gets nothing, whatever it lacked before.
        wanted = self.lacking[lane] + weights / weights.sum() * self.size
        lacking = np.where(weights > 0, wanted, 0.0)
        counts = np.maximum(np.floor(lacking), 0).astype(np.int64)
        while missing := self.size - int(counts.sum()):
            rest = lacking - counts
            if missing > 0:
                rest[weights <= 0] = -np.inf
                chosen = np.argsort(-rest, kind="stable")[: min(missing, np.count_nonzero(weights))]
                counts[chosen] += 1
            else:
                rest[counts == 0] = np.inf
                chosen = np.argsort(rest, kind="stable")[: min(-missing, np.count_nonzero(counts))]
                counts[chosen] -= 1
        self.lacking[lane] = lacking - counts
        first = self.counts[lane].copy()
        self.counts[lane] += counts
        self.batch += 1
        return Drawn(first, counts)


class History:
    """Which weights hold from which batch on.

    Args:
        changes: numbers of batches, ascending from 0, each with the weights from there on, float64,
            (classes,).
    """

    def __init__(self, changes: list[tuple[int, NDArray[np.float64]]]) -> None:
        self.changes = changes

    def at(self, batch: int) -> NDArray[np.float64]:
        """Return the weights of a batch."""
        return self.changes[self._place(batch)][1]

    def change(self, batch: int, weights: Mapping[int, float]) -> None:
        """Change weights of some classes, from a batch on up to their next change.

        Args:
            batch: number of the batch.
            weights: by class its weight.

        Raises:
            ConfigError: all weights would be 0.
        """
        place = self._place(batch)
        changes = self.changes[:]
        if changes[place][0] < batch:
            place += 1
            changes.insert(place, (batch, changes[place - 1][1]))
        for one, weight in weights.items():
            old = changes[place][1][one]
            for later in range(place, len(changes)):
                begin, vector = changes[later]
                if vector[one] != old:
                    break
                vector = vector.copy()
                vector[one] = weight
                changes[later] = (begin, vector)
        if any(not vector.any() for _, vector in changes[place:]):
            raise ConfigError("the weights of all classes would be 0")
        self.changes = changes

    def raised(self) -> list[int]:
        """Return for each class how often its weight was raised above the first one."""
        weights = np.array([one for _, one in self.changes])
        above = weights > weights[0]
        times: list[int] = np.count_nonzero(above[1:] & ~above[:-1], axis=0).tolist()
        return times

    def _place(self, batch: int) -> int:
        return bisect_right(self.changes, batch, key=lambda one: one[0]) - 1
