"""Rule: boosting adds trees without splits although nothing was learned."""

from __future__ import annotations

import math

from vinedresser.rules.base import OnceRule
from vinedresser.rules.bounds import require_at_least, require_between
from vinedresser.rules.faults import Fault
from vinedresser.rules.need import Need
from vinedresser.rules.patience import Patience
from vinedresser.rules.trees.ensemble import Ensemble, depths_of, tree_sizes
from vinedresser.store.finding import Finding
from vinedresser.store.reading.step import Step
from vinedresser.store.records import RunRecord

# Parameters that prevent splits if they are too large, by their name in each library, and their
# defaults; the first that exceeds its default is reported. XGBoost splits if the gain exceeds gamma
# and both sides weigh at least min_child_weight. reg_lambda reduces the gain of splits but prevents
# none.
_LIMITS = {
    "gamma": 0,
    "min_split_loss": 0,
    "min_child_weight": 1,
    "reg_alpha": 0,
    "min_impurity_decrease": 0,
    "min_samples_leaf": 1,
}


class EmptyTrees(OnceRule):
    """The newest trees have no splits, and the training loss has hardly decreased.

    Once no split is worth its cost, the next round has the same options, so its trees are empty,
    too (apart from subsampling). This is the normal end of a training that has learned; otherwise
    something prevents splits.

    Args:
        drop: share of the first training loss; a larger decrease counts as learning.
        every: rounds between checks.
        patience: number of consecutive checks.
    """

    fault = "over_regularisation"

    def __init__(self, drop: float = 0.1, every: int = 10, patience: int = 3) -> None:
        require_between(0, 1, drop=drop)
        require_at_least(1, every=every)
        self.drop = drop
        self.every = every
        self.patience = patience
        self.needs = (tree_sizes(every), Need("losses", required=False))
        self._ensemble: Ensemble | None = None
        # First and last value of each training loss.
        self._losses: dict[str, tuple[float, float]] = {}
        self._patience = Patience(patience)

    def begin(self, info: RunRecord) -> None:
        """Read the parameters of the ensemble."""
        self._ensemble = Ensemble(info)

    def watch(self, step: Step) -> Finding | None:
        """See `OnceRule.watch`."""
        for name, value in step.scalars_of("losses").items():
            if math.isfinite(value):
                self._losses[name] = (self._losses.get(name, (value,))[0], value)
        depths = depths_of(step)
        if not depths:
            return None
        empty = not any(depths.values()) and not self._learned()
        if not self._patience.add(step.step, seen=empty):
            return None
        return self._finding(step, next(iter(depths)))

    def _learned(self) -> bool:
        """Return whether a training loss has decreased, or none is known."""
        falls = [first - last > self.drop * abs(first) for first, last in self._losses.values()]
        return any(falls) or not falls

    def _finding(self, step: Step, name: str) -> Finding:
        losses = ", ".join(
            f"{loss} was {first:.4g} in the first round and is now {last:.4g}"
            for loss, (first, last) in self._losses.items()
        )
        fault, cause, remedy = self._advice()
        return self.found(
            step,
            fault=fault,
            since=self._patience.since,
            tensor=name,
            statistic="depth",
            value=0.0,
            threshold=1.0,
            confidence=0.95,
            seen=f"trees have no splits since round {self._patience.since}; {losses}",
            cause=cause,
            remedy=remedy,
            evidence={"looks": self._patience.looks, "losses": self._losses},
        )

    def _advice(self) -> tuple[Fault, str, str]:
        """Return the fault, its cause and the remedy."""
        for name, usual in _LIMITS.items():
            value = self._ensemble.number(name) if self._ensemble else None
            if value is not None and value > usual:
                return (
                    "over_regularisation",
                    f"{name} = {value:g} prevents every split",
                    f"lower {name} from {value:g} to {usual}, then raise it tenfold step by step",
                )
        return (
            "underfitting",
            "no split has any gain: features are constant or missing, or all labels are equal",
            "inspect the features and labels of the training data",
        )
