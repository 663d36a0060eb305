"""Evidence that the values of a stream changed at some window: a mixture over the windows."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from vinedresser.drift.evidence.likelihood import log_ratio, urn_before

__all__ = ["ChangeEvidence", "array_of", "share_of"]

# Windows that are kept as possible starts of a change; their ages grow geometrically.
_CANDIDATES = 12


def share_of(index: int) -> float:
    """Return the share of a budget that the bet number `index`, from 0, gets; their sum is below 1.

    The shares fall slower than any power 1 / index ** (1 + c), so that late changes are found, too.
    """
    # The sum is less than the integral of 1 / (x log(x)²) from 4, which is 1 / log(4).
    return math.log(4) / ((index + 5) * math.log(index + 5) ** 2)


class ChangeEvidence:
    """E-processes of several streams: wealth from bets on a change, beginning with 1.

    At each window, a share of the initial wealth is bet on a change at that window, and multiplied
    since by the likelihood ratio. Without a change, the wealth of a stream reaches 1 / p with a
    probability of p at most, at any time (Ville's inequality), in spite of the many looks. Memory
    is bounded: of two bets on neighbouring windows, one takes over the wealth of the other.

    Args:
        gaps: float64 [streams, BINS], see `Edges`.
    """

    def __init__(self, gaps: NDArray[np.float64]) -> None:
        self.total = gaps.copy()
        """float64 [streams, BINS], gaps plus all values so far."""
        self.windows = 0
        """Number of windows so far."""
        self._starts: list[int] = []
        self._before = urn_before(np.empty((0, *gaps.shape)))
        # [candidates, streams], the logs of what was bet, and of what it was multiplied by.
        self._stakes = np.empty((0, len(gaps)))
        self._ratios = np.empty((0, len(gaps)))
        self._unspent = 1.0

    def update(self, counts: NDArray[np.float64]) -> NDArray[np.float64]:
        """Add a window.

        Args:
            counts: float64 [streams, BINS], integers.

        Returns:
            The log of the wealth, float64 [streams], in nats.
        """
        share = share_of(self.windows)
        self._unspent -= share
        self._starts.append(self.windows)
        self._before = self._before.with_another(self.total)
        self._stakes = np.vstack([self._stakes, np.full(len(counts), math.log(share))])
        self._ratios = np.vstack([self._ratios, np.zeros(len(counts))])
        if len(self._starts) > _CANDIDATES:
            self._merge_two()
        self.windows += 1
        self.total += counts
        self._ratios = log_ratio(self._before, self.total)
        bets = np.logaddexp.reduce(self._stakes + self._ratios, axis=0)
        return np.asarray(np.logaddexp(bets, math.log(self._unspent)))

    def starts(self) -> NDArray[np.int64]:
        """Return the window at which each stream most likely changed, int64 [streams]."""
        most = np.argmax(self._stakes + self._ratios, axis=0)
        return np.asarray(np.array(self._starts)[most])

    def state(self) -> dict[str, Any]:
        """Return what `resume` needs, JSON-able."""
        return {
            "total": self.total.astype(int).tolist(),
            "windows": self.windows,
            "starts": self._starts,
            "before": self._before.counts.astype(int).tolist(),
            "stakes": self._stakes.tolist(),
            "unspent": self._unspent,
        }

    def resume(self, state: dict[str, Any]) -> None:
        """Continue from a state.

        Raises:
            ValueError: it is not a state of as many streams.
        """
        shape = self.total.shape
        self.total = array_of(state, "total", shape)
        self.windows = int(state["windows"])
        self._starts = [int(one) for one in state["starts"]]
        self._before = urn_before(array_of(state, "before", (len(self._starts), *shape)))
        self._stakes = array_of(state, "stakes", (len(self._starts), shape[0]))
        self._unspent = float(state["unspent"])
        self._ratios = log_ratio(self._before, self.total)

    def _merge_two(self) -> None:
        """Let a bet take over the wealth of the one that is the closest to it in age, by ratio."""
        ages = self.windows + 1.0 - np.array(self._starts)
        out = int(np.argmin(ages[:-2] / ages[2:])) + 1
        into = out - 1 if ages[out - 1] / ages[out] < ages[out] / ages[out + 1] else out + 1
        moved = self._stakes[out] + self._ratios[out] - self._ratios[into]
        self._stakes[into] = np.logaddexp(self._stakes[into], moved)
        del self._starts[out]
        self._before = self._before.without(out)
        self._stakes = np.delete(self._stakes, out, axis=0)
        self._ratios = np.delete(self._ratios, out, axis=0)


def array_of(state: dict[str, Any], key: str, shape: tuple[int, ...]) -> NDArray[np.float64]:
    """Return an array of a state.

    Args:
        state: JSON object.
        key: of a list, or list of lists, of numbers.
        shape: that it must have.

    Raises:
        ValueError: it has another shape, or values that are not finite numbers.
    """
    # An empty list has lost its shape.
    found = np.array(state[key], dtype=np.float64)
    if found.size == 0 and 0 in shape:
        return np.empty(shape)
    if found.shape != shape or not np.isfinite(found).all():
        raise ValueError(f"{key}: expected finite numbers of shape {list(shape)}")
    return found
