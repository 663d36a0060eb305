"""What grows the trees of a run: a boosted ensemble or a forest, and its parameters in force."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from vinedresser.rules.need import Need

if TYPE_CHECKING:
    from vinedresser.store.records import RunRecord

__all__ = ["RARER_FROM", "Ensemble", "tree_sizes"]

# Trees of a forest are grown to the end and averaged (Breiman 2001); those of boosting are not.
_FORESTS = ("RandomForest", "ExtraTrees", "XGBRF")
# XGBoost's boosters of trees, and what is in the names of scikit-learn's estimators.
_BOOSTERS = ("gbtree", "dart")
_OF_TREES = ("Forest", "Tree", "GradientBoosting", "AdaBoost")

# After so many looks there are fewer: what trees are like shows early, and to read them out of the
# model costs as much as a tenth of a round in which they are.
RARER_FROM = 10


class Ensemble:
    """What a run says of what grows its trees.

    Args:
        info: the run's record.

    Attributes:
        trees: it is made of trees, to which the scale of features and targets means nothing.
        forest: the trees are averaged rather than added up.
        settings: its parameters in force.
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
        """What each boosted tree counts, its learning rate; None of others, or not known."""
        boosts = self.trees and not self.forest
        return self.number("lr", "learning_rate", "eta") if boosts else None

    def number(self, *names: str) -> float | None:
        """Return the first of some parameters that is there and a number."""
        values: list[Any] = [self.settings[name] for name in names if name in self.settings]
        for value in values:
            if isinstance(value, int | float) and not isinstance(value, bool):
                return float(value)
        return None


def tree_sizes(every: int) -> Need:
    """Return the need of how deep the newest trees are, and how many leaves they have.

    Args:
        every: rounds from one look to the next.
    """
    # They are scalars; of the nodes, which come with them, no more is kept than has to be.
    return Need("trees", every, rows=1, rarer_from=RARER_FROM * every, required=False)
