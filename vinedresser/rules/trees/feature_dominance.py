"""Rule: features contribute far more or less of the gain than others."""

from __future__ import annotations

import numpy as np

from vinedresser.errors import ConfigError
from vinedresser.rules.advice import listed
from vinedresser.rules.applicability import TREES_ONLY
from vinedresser.rules.base import OnceRule
from vinedresser.rules.bounds import require_at_least, require_between, require_share
from vinedresser.rules.patience import Patience
from vinedresser.rules.trees.importances import EVERY, Importances
from vinedresser.store.finding import Finding
from vinedresser.store.reading.step import Step

# Rounds after which unused features are named, and how many are at most.
_FEWEST_ROUNDS = 30
_NAMED = 10
# Share of the gain of a single feature that hardly any honest one has.
_ALONE = 0.95


class FeatureDominance(OnceRule):
    """A few features contribute most of the gain although there are many features, or many none.

    The importance of a feature is its share of the gain of all splits so far. A dominant feature
    may be legitimate. This is a hint that it may leak the label, or that the others carry no
    information; a warning if a single one has 95 % of the gain. A second hint, at the end of a
    training of at least 30 rounds, names the features that no tree uses.

    Args:
        threshold: sum of the largest shares above which the rule fires.
        features: number of largest shares to add up.
        at_least: minimum number of features.
        patience: number of consecutive checks, one every 10 rounds.
        share: share of unused features at which the rule names them.
    """

    severity = "info"
    fault = "feature_dominance"
    position = 550
    predecessors = ("feature_importance_overweight",)
    inapplicable = TREES_ONLY
    former_names = ("unused_features",)

    def __init__(
        self,
        threshold: float = 0.8,
        features: int = 3,
        at_least: int = 10,
        patience: int = 3,
        share: float = 0.5,
    ) -> None:
        require_between(0, 1, threshold=threshold)
        require_share(share=share)
        require_at_least(1, features=features)
        if at_least <= features:
            raise ConfigError(f"at_least = {at_least}: must be more than features = {features}")
        self.threshold = threshold
        self.features = features
        self.at_least = at_least
        self.patience = patience
        self.share = share
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
            severity="warning" if shares[first] >= _ALONE else None,
            evidence={"shares": shares, "features": len(seen.shares)},
        )

    def finish(self) -> Finding | None:
        """See `Rule.finish`; features without any gain are named whether or not others dominate."""
        seen = self.importances
        # The last check may be some rounds before the last round.
        if seen.step is None or seen.step.step < _FEWEST_ROUNDS - EVERY:
            return None
        if len(seen.shares) < self.at_least:
            return None
        unused = [seen.feature(int(number)) for number in np.flatnonzero(seen.shares == 0)]
        share = len(unused) / len(seen.shares)
        if share < self.share:
            return None
        return self.found(
            seen.step,
            since=seen.step.step,
            tensor=seen.name,
            statistic="share of features without gain",
            value=share,
            threshold=self.share,
            confidence=0.9,
            seen=f"no tree uses {len(unused)} of {len(seen.shares)} features up to round "
            f"{seen.step.step}: {listed(unused, _NAMED)}",
            cause="these features are constant, copies of others, or unrelated to the label",
            remedy="remove these features: training becomes faster with equal predictions; if "
            "they should matter, check that their values arrive",
            fault="",
            evidence={"unused": unused[:100], "features": len(seen.shares)},
        )
