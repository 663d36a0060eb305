"""Rule: a few of many features contribute most of the gain."""

from __future__ import annotations

import numpy as np

from vinedresser.errors import ConfigError
from vinedresser.rules.base import OnceRule
from vinedresser.rules.bounds import require_at_least, require_between
from vinedresser.rules.patience import Patience
from vinedresser.rules.trees.importances import Importances
from vinedresser.store.finding import Finding
from vinedresser.store.reading.step import Step


class FeatureDominance(OnceRule):
    """A few features contribute most of the gain although there are many features.

    The importance of a feature is its share of the gain of all splits so far. A dominant feature
    may be legitimate. This is a hint that it may leak the label, or that the others carry no
    information.

    Args:
        threshold: sum of the largest shares above which the rule fires.
        features: number of largest shares to add up.
        at_least: minimum number of features.
        patience: number of consecutive checks, one every 10 rounds.
    """

    severity = "info"
    fault = "feature_dominance"

    def __init__(
        self, threshold: float = 0.8, features: int = 3, at_least: int = 10, patience: int = 3
    ) -> None:
        require_between(0, 1, threshold=threshold)
        require_at_least(1, features=features)
        if at_least <= features:
            raise ConfigError(f"at_least = {at_least}: must be more than features = {features}")
        self.threshold = threshold
        self.features = features
        self.at_least = at_least
        self.patience = patience
        self.importances = Importances()
        self._patience = Patience(patience)

    def watch(self, step: Step) -> Finding | None:
        """See `OnceRule.watch`."""
        seen = self.importances
        if seen.step is not step or len(seen.shares) < self.at_least:
            return None
        largest = np.argsort(seen.shares)[::-1][: self.features]
        dominated = float(seen.shares[largest].sum()) > self.threshold
        if not self._patience.add(step.step, seen=dominated):
            return None
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
            seen=f"{len(shares)} of {len(seen.shares)} features contribute {total:.0%} of the "
            f"gain: {words}",
            cause="these features almost determine the label: they may be derived from it, or "
            "become known only after it",
            remedy=f"check whether {first} is known at prediction time, and train without it for "
            "comparison; if it is legitimate, lower colsample_bytree so that other features "
            "contribute, too",
            evidence={"shares": shares, "features": len(seen.shares)},
        )
