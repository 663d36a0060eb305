"""Rule: a few of many features hold most of what the trees gain."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from vinedresser.errors import ConfigError
from vinedresser.rules.base import Rule
from vinedresser.rules.patience import Patience
from vinedresser.rules.trees.importances import Importances
from vinedresser.store.finding import Finding

if TYPE_CHECKING:
    from vinedresser.store.reading.step import Step

__all__ = ["FeatureDominance"]


class FeatureDominance(Rule):
    """The largest importances sum to more than a threshold, where there are many features.

    The importance of a feature is its share in the gain of all splits so far. It may be right: it
    is a hint that one of them may give the label away, or that the others carry nothing.

    Args:
        threshold: sum of the largest shares, over which it fires.
        features: how many largest.
        at_least: features there must be.
        patience: looks in a row; there is one every 10 rounds.
    """

    severity = "info"
    fault = "feature_dominance"
    needs = ()

    def __init__(
        self, threshold: float = 0.8, features: int = 3, at_least: int = 10, patience: int = 3
    ) -> None:
        if not 0 < threshold < 1:
            raise ConfigError(f"threshold = {threshold:g}: must lie between 0 and 1")
        if features < 1:
            raise ConfigError(f"features = {features}: must be at least 1")
        if at_least <= features:
            raise ConfigError(f"at_least = {at_least}: must be more than features = {features}")
        self.threshold = threshold
        self.features = features
        self.at_least = at_least
        self.patience = patience
        self.importances = Importances()
        self._patience = Patience(patience)
        self._fired = False

    def update(self, step: Step) -> Finding | None:
        """See `Rule.update`."""
        seen = self.importances
        if self._fired or seen.step is not step or len(seen.shares) < self.at_least:
            return None
        largest = np.argsort(seen.shares)[::-1][: self.features]
        dominated = float(seen.shares[largest].sum()) > self.threshold
        if not self._patience.add(step.step, seen=dominated):
            return None
        self._fired = True
        return self._finding(step, [int(number) for number in largest])

    def _finding(self, step: Step, largest: list[int]) -> Finding:
        seen = self.importances
        shares = {seen.feature(number): float(seen.shares[number]) for number in largest}
        words = ", ".join(f"{name} {share:.2f}" for name, share in shares.items())
        total = sum(shares.values())
        first = next(iter(shares))
        return self.found(
            step,
            since=self._patience.since,
            tensor=seen.name,
            statistic="share of the gain",
            value=total,
            threshold=self.threshold,
            confidence=0.5,
            seen=f"{len(shares)} of {len(seen.shares)} features hold {total:.0%} of the gain: "
            f"{words}",
            cause="they tell the label almost alone: they may be made from it, or known only after "
            "it",
            remedy=f"see whether {first} is known when one predicts, and how good a training "
            f"without it is; if it is right, lower colsample_bytree so that others count too",
            evidence={"shares": shares, "features": len(seen.shares)},
        )
