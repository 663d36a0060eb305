"""Signal: share of each feature in the gain of all splits."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from vinedresser.rules.need import Need
from vinedresser.rules.signals.base import Signal
from vinedresser.rules.trees.ensemble import RARER_FROM
from vinedresser.store.reading.step import Step
from vinedresser.store.records import RunRecord

__all__ = ["EVERY", "Importances"]

EVERY = 10
# Sums over splits in XGBoost and scikit-learn. Means over splits cannot be added.
_SUMS = ("total_gain", "impurity")


class Importances(Signal):
    """Share of each feature in the gain of all splits so far; the shares sum to 1.

    Gain is the decrease of the objective due to a split, as computed by the library (Breiman et al.
    1984; Chen and Guestrin 2016, equation 7).

    Attributes:
        step: last step with importances; None before the first.
        name: name of their tensor.
        shares: share of each feature, float64 [features].
    """

    needs = (Need("feature_importance", EVERY, rarer_from=RARER_FROM * EVERY, required=False),)

    def __init__(self) -> None:
        self.step: Step | None = None
        self.name = ""
        self.shares: NDArray[np.float64] = np.zeros(0)
        self._features: list[str] = []

    def begin(self, info: RunRecord) -> None:
        """Read the feature names."""
        self._features = list(info.features)

    def update(self, step: Step) -> None:
        """See `Signal.update`."""
        if step.rank != 0 or step.mode != "train":
            return
        # The first fold of a cross-validation.
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
