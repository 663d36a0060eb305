"""Type and parameters of a run's tree ensemble."""

from __future__ import annotations

import re
from typing import Any

from vinedresser.rules.need import Need
from vinedresser.store.reading.step import Step
from vinedresser.store.records import RunRecord

__all__ = ["RARER_FROM", "Ensemble", "depths_of", "groups_of", "tree_sizes"]

_DEPTH = re.compile(r"trees/([^\[\]/]*\.)?depth(\[\d+\])?")

# Trees of a forest are fully grown and averaged (Breiman 2001); those of boosting are not.
_FORESTS = ("RandomForest", "ExtraTrees", "XGBRF")
# XGBoost's tree boosters, and parts of the names of scikit-learn's tree estimators.
_BOOSTERS = ("gbtree", "dart")
_OF_TREES = ("Forest", "Tree", "GradientBoosting", "AdaBoost")

# Number of checks after which they become rarer: the shape of trees shows early, and reading them
# from the model costs up to a tenth of a round.
RARER_FROM = 10


class Ensemble:
    """Type and parameters of a run's tree ensemble.

    Attributes:
        trees: whether the model consists of trees, which ignore the scale of features and targets.
        forest: whether the trees are averaged instead of added up.
        settings: parameters in use.
    """

    def __init__(self, info: RunRecord) -> None:
        kind, self.settings = "", dict(info.parameters)
        if info.optimizers:
            kind = str(info.optimizers[0].get("type", ""))
            self.settings |= info.optimizers[0].get("settings", {})
        parallel = self.number("num_parallel_tree")
        self.trees = kind in _BOOSTERS or any(word in kind for word in _OF_TREES)
        self.forest = kind.startswith(_FORESTS) or (parallel is not None and parallel > 1)

    @property
    def shrinkage(self) -> float | None:
        """Learning rate of boosted trees; None for other models or if unknown."""
        boosts = self.trees and not self.forest
        return self.number("lr", "learning_rate", "eta") if boosts else None

    def is_fresh(self, first: Step) -> bool:
        """Return whether the ensemble had no trees before a step, so continues no other one.

        Args:
            first: the first train step.
        """
        trees = self.number("num_trees")
        if trees is None:
            return not self.settings.get("warm_start")
        # XGBoost tells the number of trees after the first round.
        return trees <= groups_of(first)

    def number(self, *names: str) -> float | None:
        """Return the first of some parameters that is present and a number."""
        values: list[Any] = [self.settings[name] for name in names if name in self.settings]
        for value in values:
            if isinstance(value, int | float) and not isinstance(value, bool):
                return float(value)
        return None


def groups_of(step: Step) -> int:
    """Return the number of trees in a round, such as one per class; 0 if not captured."""
    return len(depths_of(step))


def depths_of(step: Step) -> dict[str, float]:
    """Return the depths of a round's trees by name; {} if not captured."""
    trees = step.scalars_of("trees").items()
    return {name: value for name, value in trees if _DEPTH.fullmatch(name)}


def tree_sizes(every: int) -> Need:
    """Return the need for the depth and number of leaves of the newest trees.

    Args:
        every: rounds between checks.
    """
    # Both are scalars; of the nodes, which are captured along with them, keep as little as
    # possible.
    return Need("trees", every, rows=1, rarer_from=RARER_FROM * every, required=False)
