"""Rule: no tree of a completed training uses some features."""

from __future__ import annotations

import numpy as np

from vinedresser.rules.advice import listed
from vinedresser.rules.base import Rule
from vinedresser.rules.bounds import require_at_least, require_share
from vinedresser.rules.trees.importances import EVERY, Importances
from vinedresser.store.finding import Finding
from vinedresser.store.reading.step import Step

_FEWEST_ROUNDS = 30
_NAMED = 10


class UnusedFeatures(Rule):
    """No tree uses a large share of the features after at least 30 rounds.

    Args:
        share: share of unused features at which the rule fires.
        at_least: minimum number of features.
    """

    severity = "info"

    def __init__(self, share: float = 0.5, at_least: int = 10) -> None:
        require_share(share=share)
        require_at_least(1, at_least=at_least)
        self.share = share
        self.at_least = at_least
        self.importances = Importances()

    def update(self, step: Step) -> Finding | None:  # noqa: ARG002 (the signal has seen it)
        """See `Rule.update`."""
        return None

    def finish(self) -> Finding | None:
        """See `Rule.finish`."""
        seen = self.importances
        # The last check may be some rounds before the last round.
        if seen.step is None or seen.step.step < _FEWEST_ROUNDS - EVERY:
            return None
        if len(seen.shares) < self.at_least:
            return None
        unused = [int(number) for number in np.flatnonzero(seen.shares == 0)]
        share = len(unused) / len(seen.shares)
        if share < self.share:
            return None
        names = [seen.feature(number) for number in unused]
        return self.found(
            seen.step,
            since=seen.step.step,
            tensor=seen.name,
            statistic="share of features without gain",
            value=share,
            threshold=self.share,
            confidence=0.9,
            seen=f"no tree uses {len(names)} of {len(seen.shares)} features up to round "
            f"{seen.step.step}: {listed(names, _NAMED)}",
            cause="these features are constant, copies of others, or unrelated to the label",
            remedy="remove these features: training becomes faster with equal predictions; if "
            "they should matter, check that their values arrive",
            evidence={"unused": names[:100], "features": len(seen.shares)},
        )
