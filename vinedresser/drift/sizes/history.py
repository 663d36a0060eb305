"""Sums over all rows, and what they were before each window at which a change may have begun."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from vinedresser.drift.evidence.likelihood import array_of


class History:
    """Sums over all rows so far, and those before some windows; memory is constant.

    Args:
        size: number of sums.
    """

    def __init__(self, size: int) -> None:
        self.total = np.zeros(size)
        """float64 [size], sums over all rows."""
        self._before: dict[int, NDArray[np.float64]] = {}

    def add(self, window: int, sums: NDArray[np.float64], starts: Iterable[int]) -> None:
        """Add the sums of a window.

        Args:
            window: its index.
            sums: float64 [size].
            starts: windows before which the sums may still be asked for; others are forgotten.
        """
        self._before[window] = self.total
        self.total = self.total + sums
        kept = {*starts}
        self._before = {start: one for start, one in self._before.items() if start in kept}

    def before(self, start: int) -> NDArray[np.float64]:
        """Return the sums over the rows before a window, float64 [size].

        Args:
            start: one of the windows that were named in all calls of `add` since then.
        """
        return self._before[start]

    def state(self) -> dict[str, Any]:
        """Return what `resume` needs, JSON-able."""
        return {
            "total": self.total.tolist(),
            "before": [[start, one.tolist()] for start, one in self._before.items()],
        }

    def resume(self, state: dict[str, Any]) -> None:
        """Continue from a state.

        Raises:
            ValueError: it is not a state of as many sums.
        """
        shape = self.total.shape
        self.total = array_of(state, "total", shape)
        self._before = {
            int(start): array_of({"before": one}, "before", shape) for start, one in state["before"]
        }
