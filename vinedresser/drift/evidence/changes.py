"""Evidence that the values of a stream changed at some window: a mixture over the windows."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from vinedresser.drift.evidence.likelihood import Seen, Urn, array_of, log_ratio

__all__ = ["ChangeEvidence", "share_of"]

# Windows that are kept as possible starts of a change; their ages grow geometrically.
_CANDIDATES = 12
# Difference of two logs of likelihoods below which a start is as plausible as another one, in nats:
# the half of the 95 % quantile of a chi-squared distribution (Wilks' theorem).
_NEARLY = 1.92


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
        gaps: float64 [streams, phases, BINS], see `Edges`.
    """

    def __init__(self, gaps: NDArray[np.float64]) -> None:
        self._gaps = gaps
        self.urn = Urn(gaps)
        self.windows = 0
        """Number of windows so far."""
        self._starts: list[int] = []
        self._before = Seen(*(one[None][:0] for one in self.urn.seen))
        # [candidates, streams], the logs of what was bet, and of what it was multiplied by.
        self._stakes = np.empty((0, len(gaps)))
        self._ratios = np.empty((0, len(gaps)))
        self._unspent = 1.0
        self._bets = 0

    def update(self, counts: NDArray[np.float64], since: int | None = None) -> NDArray[np.float64]:
        """Add a window.

        Args:
            counts: float64 [streams, phases, BINS], integers.
            since: index of the first window that some of them come from; None: from this one.

        Returns:
            The log of the wealth, float64 [streams], in nats.
        """
        share = share_of(self._bets)
        self._bets += 1
        self._unspent -= share
        self._starts.append(self.windows if since is None else since)
        pairs = zip(self._before, self.urn.seen, strict=True)
        self._before = Seen(*(np.concatenate([old, new[None]]) for old, new in pairs))
        self._stakes = np.vstack([self._stakes, np.full(len(counts), math.log(share))])
        self._ratios = np.vstack([self._ratios, np.zeros(len(counts))])
        if len(self._starts) > _CANDIDATES:
            self._merge_two()
        self.windows += 1
        self.urn.add(counts)
        self._ratios = log_ratio(self._before, self.urn.seen)
        return self._wealth()

    def wait(self) -> NDArray[np.float64]:
        """Add a window whose values will be added with a later one; see `update`."""
        self.windows += 1
        return self._wealth()

    def forget(self, streams: NDArray[np.bool_]) -> None:
        """Begin some streams anew, as if they had had no values so far.

        Args:
            streams: bool [streams].
        """
        fresh = Urn(self._gaps[streams])
        self.urn.total[streams] = fresh.total
        for first, seen, before in zip(fresh.seen, self.urn.seen, self._before, strict=True):
            seen[streams] = first
            before[:, streams] = first

    def _wealth(self) -> NDArray[np.float64]:
        bets = np.logaddexp.reduce(self._stakes + self._ratios, axis=0)
        return np.asarray(np.logaddexp(bets, math.log(self._unspent)))

    @property
    def total(self) -> NDArray[np.float64]:
        """Gaps plus all values so far, of all phases, float64 [streams, BINS]."""
        return np.asarray(self.urn.total.sum(1))

    @property
    def candidates(self) -> tuple[int, ...]:
        """Windows that are kept as possible starts of a change."""
        return tuple(self._starts)

    def starts(self) -> NDArray[np.int64]:
        """Return the window at which each stream probably changed, int64 [streams].

        It is the earliest one that is nearly as likely as the most likely one.
        """
        if not self._starts:
            return np.zeros(self._stakes.shape[1], np.int64)
        wealth = self._stakes + self._ratios
        likely = wealth >= wealth.max(0) - _NEARLY
        return np.asarray(np.array(self._starts)[np.argmax(likely, axis=0)])

    def state(self) -> dict[str, Any]:
        """Return what `resume` needs, JSON-able."""
        return {
            "urn": self.urn.state(),
            "windows": self.windows,
            "starts": self._starts,
            "before": {name: one.tolist() for name, one in self._before._asdict().items()},
            "stakes": self._stakes.tolist(),
            "unspent": self._unspent,
            "bets": self._bets,
        }

    def resume(self, state: dict[str, Any]) -> None:
        """Continue from a state.

        Raises:
            ValueError: it is not a state of as many streams.
        """
        self.urn.resume(state["urn"])
        self.windows = int(state["windows"])
        self._starts = [int(one) for one in state["starts"]]
        shape = (len(self._starts), *self.urn.seen.law.shape)
        self._before = Seen(*(array_of(state["before"], name, shape) for name in Seen._fields))
        self._stakes = array_of(state, "stakes", shape[:2])
        self._unspent, self._bets = float(state["unspent"]), int(state["bets"])
        self._ratios = log_ratio(self._before, self.urn.seen)

    def _merge_two(self) -> None:
        """Let a bet take over the wealth of the one that is the closest to it in age, by ratio."""
        ages = self.windows + 1.0 - np.array(self._starts)
        out = int(np.argmin(ages[:-2] / ages[2:])) + 1
        into = out - 1 if ages[out - 1] / ages[out] < ages[out] / ages[out + 1] else out + 1
        moved = self._stakes[out] + self._ratios[out] - self._ratios[into]
        self._stakes[into] = np.logaddexp(self._stakes[into], moved)
        del self._starts[out]
        self._before = Seen(*(np.delete(one, out, axis=0) for one in self._before))
        self._stakes = np.delete(self._stakes, out, axis=0)
        self._ratios = np.delete(self._ratios, out, axis=0)
