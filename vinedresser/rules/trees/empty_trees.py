"""Rule: boosting adds trees without splits although nothing was learned."""

from __future__ import annotations

import math

from vinedresser.rules.applicability import TREES_ONLY
from vinedresser.rules.base import OnceRule
from vinedresser.rules.bounds import require_at_least, require_between
from vinedresser.rules.faults import Fault
from vinedresser.rules.need import Need
from vinedresser.rules.patience import Patience
from vinedresser.rules.trees.ensemble import Ensemble, depths_of, tree_sizes
from vinedresser.store.finding import Finding, Severity
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


# Weight of the rows of one class with which they count for next to nothing.
_NO_WEIGHT = 0.05


class EmptyTrees(OnceRule):
    """The newest trees have no splits, and the training loss has hardly decreased.

    Once no split is worth its cost, the next round has the same options, so its trees are empty,
    too (apart from subsampling). This is the normal end of a training that has learned; otherwise
    something prevents splits. At the end of a run, no split in any checked round is a warning
    whatever the loss did: without splits, an ensemble only learns the best constant. A loss of
    exactly 0 in the first round means that all labels are equal (`single_label`). If XGBoost gives
    the rows of class 1 less than 0.05 of the weight of the others (``scale_pos_weight``), these
    weights are the cause (`class_imbalance`).

    Args:
        drop: fall of the training loss that counts as learning, as a share of its first value.
        every: rounds between checks.
        patience: number of consecutive checks.
    """

    fault = "over_regularisation"
    position = 510
    inapplicable = TREES_ONLY

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
        # Whether no tree of this ensemble has had a split; the last check and one of its depths.
        self._constant = True
        self._last: tuple[Step, str] | None = None
        self._started = False
        # Weight of the rows of class 1, relative to the others (XGBoost).
        self._weight = 1.0

    def begin(self, info: RunRecord) -> None:
        """Read the parameters of the ensemble and the weight of its rows."""
        self._ensemble = Ensemble(info)
        settings = info.losses.get("objective", {}).get("settings", {})
        weight = settings.get("scale_pos_weight")
        self._weight = float(weight) if isinstance(weight, int | float) else 1.0

    def watch(self, step: Step) -> Finding | None:
        """See `OnceRule.watch`."""
        if not self._started:
            self._started = True
            self._constant = self._ensemble is not None and self._ensemble.is_fresh(step)
        for name, value in step.scalars_of("losses").items():
            if math.isfinite(value):
                self._losses[name] = (self._losses.get(name, (value,))[0], value)
        depths = depths_of(step)
        if not depths:
            return None
        split = any(depths.values())
        self._constant &= not split
        self._last = (step, next(iter(depths)))
        if not self._patience.add(step.step, seen=not split and not self._learned()):
            return None
        return self._finding(*self._last, self._patience.since, None)

    def at_end(self) -> Finding | None:
        """Return the finding about an ensemble that is a constant."""
        if self._last is None or not self._constant:
            return None
        step, name = self._last
        if step.step < self.every * (self.patience - 1):
            return None
        return self._finding(step, name, 0, self.without_stop)

    def _learned(self) -> bool:
        """Return whether a training loss has decreased, or none is known."""
        falls = [first - last > self.drop * abs(first) for first, last in self._losses.values()]
        return any(falls) or not falls

    def _finding(self, step: Step, name: str, since: int, severity: Severity | None) -> Finding:
        losses = "".join(
            f"; {loss} was {first:.4g} in the first round and is now {last:.4g}"
            for loss, (first, last) in self._losses.items()
        )
        fault, cause, remedy = self._advice()
        return self.found(
            step,
            fault=fault,
            severity=severity,
            since=since,
            tensor=name,
            statistic="depth",
            value=0.0,
            threshold=1.0,
            confidence=0.95,
            seen=f"trees have no splits since round {since}{losses}",
            cause=cause,
            remedy=remedy,
            evidence={"looks": self._patience.count, "losses": self._losses},
        )

    def _advice(self) -> tuple[Fault, str, str]:
        """Return the fault, its cause and the remedy."""
        firsts = [first for first, _ in self._losses.values()]
        if firsts and not any(firsts):
            return (
                "single_label",
                "all labels are equal: without any split, the predictions are already perfect",
                "inspect the labels; shuffle the rows before splitting them",
            )
        if 0 < self._weight < _NO_WEIGHT:
            return (
                "class_imbalance",
                f"class 1 has no weight for any split to gain: scale_pos_weight = {self._weight:g}",
                "use scale_pos_weight = (number of rows of class 0) / (number of rows of class 1)",
            )
        rate = self._ensemble.shrinkage if self._ensemble else None
        rises = [last > (1 + self.drop) * first for first, last in self._losses.values()]
        if rate is not None and rate > 1 and any(rises):
            return (
                "learning_rate_too_high",
                "trees without a split follow others that raised the loss and left nothing to gain",
                "use a learning rate (eta) of 0.3 or less",
            )
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
