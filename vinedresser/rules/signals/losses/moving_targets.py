"""Whether the targets of a loss grow while the model is trained."""

from __future__ import annotations

from collections import Counter, deque

import numpy as np

from vinedresser.rules.signals.losses.compared import BatchSignal
from vinedresser.store.reading.step import Step

# Maximum number of checks at the start, and of recent ones, and their share of all checks: a hook
# that keeps to its budget looks rarely.
_CHECKS, _SHARE = 8, 4
# Share of the steps so far before which the last check is too old to rule out anything.
_FRESH = 0.75
# Rise of a loss that is certain without knowing its targets, and one that no targets explain.
_FAR = 10.0
_FARTHEST = 100.0
# Minimum growth of the targets, and as a share of the rise of the loss, that explains it.
_GROWN, _EXPLAINED = 1.5, 0.5


class MovingTargets(BatchSignal):
    """The size of the targets of each loss, relative to that at the start.

    The errors of a model grow with its targets, whatever it learns: those of a value function grow
    with the returns, since the model makes them itself (Mnih et al., Nature 518, 2015).
    """

    def __init__(self) -> None:
        super().__init__()
        # By loss, mean and mean square at the first and at the last checks, their number, and the
        # step of the last one.
        self._first: dict[str, list[tuple[float, float]]] = {}
        self._recent: dict[str, deque[tuple[float, float]]] = {}
        self._checks: Counter[str] = Counter()
        self._checked: dict[str, int] = {}
        self._step = 0

    def update(self, step: Step) -> None:
        """See `Signal.update`."""
        if step.mode != "train":
            return
        self._step = step.step
        for compared in self.batches.compared:
            values = np.asarray(compared.labels, np.float64)
            if not values.size or not np.isfinite(values).all():
                continue
            check = float(values.mean()), float(np.square(values).mean())
            first = self._first.setdefault(compared.loss, [])
            if len(first) < _CHECKS:
                first.append(check)
            self._recent.setdefault(compared.loss, deque(maxlen=_CHECKS)).append(check)
            self._checks[compared.loss] += 1
            self._checked[compared.loss] = step.step

    def explain(self, loss: str, rise: float) -> bool:
        """Return whether a loss rises because its targets grow.

        Args:
            rise: ratio of the loss to its start.
        """
        return rise < _FARTHEST and self.growth(loss) > max(_GROWN, _EXPLAINED * rise)

    def rule_out(self, loss: str, rise: float) -> bool:
        """Return whether growing targets certainly are not why a loss rises.

        Args:
            rise: ratio of the loss to its start.
        """
        many = self._checks[loss] >= _CHECKS and self._checked[loss] >= _FRESH * self._step
        known = rise >= _FAR or many
        return known and not self.explain(loss, rise)

    def growth(self, loss: str) -> float:
        """Return the mean square of recent targets around their first mean, relative to the first.

        It is 1 for targets that stay as they are, and 0 if too little is known of them.
        """
        count = min(self._checks[loss] // _SHARE, _CHECKS)
        if not count:
            return 0.0
        first, recent = self._first[loss][:count], [*self._recent[loss]][-count:]
        center = float(np.mean([mean for mean, _ in first]))
        spread = _around(center, first)
        return _around(center, recent) / spread if spread > 0 else 0.0


def _around(center: float, checks: list[tuple[float, float]]) -> float:
    """Return the mean square of targets around a value, given means and mean squares of checks."""
    return float(np.mean([square - 2 * mean * center + center**2 for mean, square in checks]))
