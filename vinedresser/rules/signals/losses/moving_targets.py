"""Whether the targets of a loss grow while the model is trained."""

from __future__ import annotations

from collections import deque

import numpy as np

from vinedresser.rules.signals.losses.compared import BatchSignal
from vinedresser.store.reading.step import Step

__all__ = ["MovingTargets"]

# Number of looks at the start, and of recent ones.
_LOOKS = 8


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

    def known(self, loss: str) -> bool:
        """Return whether targets of a loss were captured.

        Args:
            loss: name of the loss without its collection.
        """
        return loss in self._start

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
