"""Signal: what share of the gain of all splits each feature has."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from vinedresser.rules.need import Need
from vinedresser.rules.signals.base import Signal
from vinedresser.rules.trees.ensemble import RARER_FROM

if TYPE_CHECKING:
    from vinedresser.store.reading.step import Step
    from vinedresser.store.records import RunRecord

__all__ = ["EVERY", "Importances"]

EVERY = 10
# Sums over the splits, of XGBoost and of scikit-learn. Means over splits do not add up.
_SUMS = ("total_gain", "impurity")


class Importances(Signal):
    """The share of each feature in the gain of all splits so far; shares sum to 1.

    Gain is what a split takes from the objective, as the library counts it (Breiman et al. 1984;
    Chen and Guestrin 2016, equation 7).

    Attributes:
        step: the last at which they were seen; None before.
        name: of the tensor that has them.
        shares: float64 [features].
    """

    needs = (Need("feature_importance", EVERY, rarer_from=RARER_FROM * EVERY, required=False),)

    def __init__(self) -> None:
        self.step: Step | None = None
        self.name = ""
        self.shares: NDArray[np.float64] = np.zeros(0)
        self._features: list[str] = []

    def begin(self, info: RunRecord) -> None:
        """Take note of the features' names."""
        self._features = list(info.features)

    def update(self, step: Step) -> None:
        """See `Signal.update`."""
        if step.rank != 0 or step.mode != "train":
            return
        # Of a cross-validation, the first fold.
        for name in step.tensors_of("feature_importance"):
            if name.rpartition("/")[2].rpartition(".")[2] in _SUMS:
                values = np.asarray(step.tensor(name), np.float64)
                total = float(values.sum())
                if values.ndim == 1 and np.isfinite(total) and total > 0:
                    self.step, self.name, self.shares = step, name, values / total
                return

    def feature(self, number: int) -> str:
        """Return the name of a feature."""
        if len(self._features) == len(self.shares):
            return self._features[number]
        return f"f{number}"
