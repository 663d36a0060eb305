"""Shared slices of the newest rounds of a booster."""

from __future__ import annotations

from xgboost import Booster

__all__ = ["NewestRounds"]

# Serializing this many additional rounds is cheaper than another slice.
_FEW = 16


class NewestRounds:
    """The current rounds of a booster, with cached slices.

    Args:
        booster: a booster with at least one round; slices require trees.

    Attributes:
        booster: the whole booster.
        count: number of rounds.
    """

    def __init__(self, booster: Booster) -> None:
        self.booster = booster
        self.count = booster.num_boosted_rounds()
        self._slices: dict[int, Booster] = {}

    def since(self, first: int) -> Booster:
        """Return a booster with the rounds from `first` on, counted from 0."""
        if first == 0:
            return self.booster
        if first not in self._slices:
            self._slices[first] = self.booster[first : self.count]
        return self._slices[first]

    def recent(self) -> Booster:
        """Return a cached slice with the newest round and few others, or slice the newest round."""
        shared = [first for first in self._slices if first >= self.count - _FEW]
        return self.since(max(shared, default=self.count - 1))
