"""Cutting the newest rounds out of a booster, once for all who look at them."""

from __future__ import annotations

from xgboost import Booster

__all__ = ["NewestRounds"]

# To write down and read so many rounds more costs less than another cut.
_FEW = 16


class NewestRounds:
    """The rounds of a booster as it is now, of which some may be cut out.

    A cut is a booster of its own, which costs the same in every round of a training.

    Args:
        booster: of trees, where anything is to be cut out; it has a round at least.

    Attributes:
        booster: the whole.
        count: rounds that it has.
    """

    def __init__(self, booster: Booster) -> None:
        self.booster = booster
        self.count = booster.num_boosted_rounds()
        self._cuts: dict[int, Booster] = {}

    def since(self, first: int) -> Booster:
        """Return the rounds from one on, with those before it left out.

        Args:
            first: number of that round, from 0.
        """
        if first == 0:
            return self.booster
        if first not in self._cuts:
            self._cuts[first] = self.booster[first : self.count]
        return self._cuts[first]

    def recent(self) -> Booster:
        """Return the newest round, perhaps with some before it that were cut out already."""
        shared = [first for first in self._cuts if first >= self.count - _FEW]
        return self.since(max(shared, default=self.count - 1))
