"""Whether the targets of a loss grow while the model is trained."""

from __future__ import annotations

from collections import deque

import numpy as np

from vinedresser.rules.signals.losses.compared import BatchSignal
from vinedresser.store.reading.step import Step

__all__ = ["MovingTargets"]

# Number of looks at the start, and of recent ones.
_LOOKS = 8
# Rise of a loss that is certain without knowing its targets, and one that no targets explain.
_FAR = 10.0
_FARTHEST = 100.0
# Minimum growth of the targets, as a share of the rise of the loss, that explains it.
_EXPLAINED = 0.5


class MovingTargets(BatchSignal):
    """The size of the targets of each loss, relative to that at the start.

    The errors of a model grow with its targets, whatever it learns: those of a value function grow
    with the returns, since the model makes them itself (Mnih et al., Nature 518, 2015).
    """

    def __init__(self) -> None:
        super().__init__()
        # By loss, of the looks at the start: number, mean, and mean square around it.
        self._start: dict[str, tuple[int, float, float]] = {}
        # By loss, mean and mean square of the recent looks.
        self._recent: dict[str, deque[tuple[float, float]]] = {}

    def update(self, step: Step) -> None:
        """See `Signal.update`."""
        if step.mode != "train":
            return
        for compared in self.batches.compared:
            values = np.asarray(compared.labels, np.float64)
            if not values.size or not np.isfinite(values).all():
                continue
            mean, square = float(values.mean()), float(np.square(values).mean())
            looks, center, spread = self._start.get(compared.loss, (0, 0.0, 0.0))
            if looks < _LOOKS:
                deviation = square - 2 * mean * center + center**2 if looks else square - mean**2
                center += (mean - center) / (looks + 1)
                spread += (deviation - spread) / (looks + 1)
                self._start[compared.loss] = (looks + 1, center, spread)
            recent = self._recent.setdefault(compared.loss, deque(maxlen=_LOOKS))
            recent.append((mean, square))

    def explain(self, loss: str, rise: float) -> bool:
        """Return whether a loss rises because its targets grow.

        Args:
            loss: name of the loss without its collection.
            rise: ratio of the loss to its start.
        """
        return rise < _FARTHEST and self.growth(loss) > max(1.0, _EXPLAINED * rise)

    def rule_out(self, loss: str, rise: float) -> bool:
        """Return whether growing targets certainly are not why a loss rises.

        Args:
            loss: name of the loss without its collection.
            rise: ratio of the loss to its start.
        """
        known = rise >= _FAR or loss in self._start
        return known and not self.explain(loss, rise)

    def growth(self, loss: str) -> float:
        """Return the mean square of recent targets around their first mean, relative to the first.

        It is 1 for targets that stay as they are, and 0 if none are known.

        Args:
            loss: name of the loss without its collection.
        """
        looks, center, spread = self._start.get(loss, (0, 0.0, 0.0))
        if looks < _LOOKS or spread <= 0:
            return 0.0
        deviations = (square - 2 * mean * center + center**2 for mean, square in self._recent[loss])
        return float(np.mean(list(deviations))) / spread
