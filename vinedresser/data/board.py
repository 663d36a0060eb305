"""Where a mixture's workers read the position, and the weights that are changed meanwhile."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from vinedresser.data.blend import Blend, History
from vinedresser.errors import ConfigError

__all__ = ["MOST_PENDING", "Board"]

MOST_PENDING = 64
"""Maximum number of changes of weights that do not hold yet."""


class Board:
    """Position and weights in an array, which the memory of several processes may share.

    The process of the training writes; workers read. It changes only weights of batches that no
    worker was asked for, so it does not matter when a worker sees the change. Only workers of an
    iteration that was broken off may read while the position of the next one is written.

    Args:
        array: the array, float64, (`size(…)`,).
    """

    def __init__(self, array: NDArray[np.float64], classes: int, lanes: int) -> None:
        split = 1 + 2 * lanes * classes
        self._batch = array[:1]
        self._counts, self._lacking = array[1:split].reshape(2, lanes, classes)
        # Of each change the number of its first batch, or infinity, and the weights.
        self._changes = array[split:].reshape(-1, 1 + classes)

    @staticmethod
    def size(classes: int, lanes: int, needed: int) -> int:
        """Return the size of an array.

        Args:
            needed: number of changes that hold already, and that workers may need.
        """
        return 1 + 2 * lanes * classes + (MOST_PENDING + needed + 2) * (1 + classes)

    def write(self, blend: Blend, history: History) -> None:
        """Write the position at which workers begin, and the weights from there on."""
        self._batch[:] = blend.batch
        self._lacking[:] = blend.lacking
        self._counts[:] = blend.counts
        self._changes[:] = np.inf
        self.change(history, blend.batch)

    def change(self, history: History, needed: int) -> None:
        """Write changes of weights.

        Args:
            needed: number of the first batch that a worker may still have to draw.
        """
        in_force = history.at(needed)
        wanted = [
            (begin, one) for begin, one in history.changes if begin > needed or one is in_force
        ]
        begins = {begin for begin, _ in wanted}
        free = [row for row in self._changes if row[0] not in begins]
        held = {row[0]: row for row in self._changes if row[0] in begins}
        for begin, weights in wanted:
            row = held[begin] if begin in held else free.pop()
            # No worker takes the row before it is complete: its number is written last.
            if begin not in held:
                row[0] = np.inf
            row[1:] = weights
            row[0] = begin

    def blend(self, size: int) -> Blend:
        """Return the position, for batches of a size."""
        return Blend(size, int(self._batch[0]), self._counts.astype(np.int64), self._lacking.copy())

    def at(self, batch: int) -> NDArray[np.float64]:
        """Return the weights of a batch.

        Raises:
            ConfigError: another iteration has begun, and its weights are being written.
        """
        # Read once: a row may be written meanwhile, and its number is then infinity.
        numbers = self._changes[:, 0].copy()
        begins = np.where(numbers <= batch, numbers, -1)
        row = int(begins.argmax())
        weights = self._changes[row, 1:].copy()
        if begins[row] < 0 or not (np.isfinite(weights).all() and weights.any()):
            raise ConfigError(f"batch {batch}: its iteration was broken off")
        return weights
