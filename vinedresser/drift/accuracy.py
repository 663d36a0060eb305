"""The accuracy of predictions whose labels become known later."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from vinedresser.drift.contents import Contents
from vinedresser.drift.evidence.bins import outer_bins
from vinedresser.drift.evidence.dependence import TOO_FAR
from vinedresser.drift.evidence.streams import Streams
from vinedresser.drift.limits import order_of, why_unsettled
from vinedresser.drift.sizes.change import Change, share_change
from vinedresser.drift.sizes.history import History
from vinedresser.drift.sizes.sensitivity import Sensitivity, seems_at_least, share_ladder

__all__ = ["Accuracy", "Judged"]

_ROWS, _CORRECT, _WINDOWS = range(3)


class Judged(NamedTuple):
    """What labels say of the accuracy.

    Attributes:
        evidence: that it has fallen, in nats.
        since: index of the window at which it probably fell.
        change: by how much it has changed since.
    """

    evidence: float
    since: int
    change: Change


class Accuracy:
    """Evidence that the accuracy has fallen.

    Args:
        needed: evidence that raises an alarm, in nats.
        at_least: smallest change that raises one.
    """

    def __init__(self, baseline: Contents, needed: float, at_least: float) -> None:
        assert baseline.correct is not None
        self._baseline, self._edges = baseline, baseline.correct
        self._streams = Streams(
            baseline.correct,
            np.array([baseline.correctness.distance]),
            1,
            known=baseline.correctness.usual,
            told=baseline.told_by_labels,
        )
        self._history = History(3)
        self._needed, self._at_least = needed, at_least
        self.labels = 0
        """Number of batches of labels so far."""

    @property
    def rows(self) -> int:
        """Number of labels so far."""
        return int(self._history.total[_ROWS])

    @property
    def judged(self) -> int:
        """Number of labels that count."""
        return int(self._streams.changes.total.sum() - self._edges.gaps.sum())

    def add(self, correct: NDArray[np.float64], windows: int) -> Judged:
        """Add a batch of labels.

        Args:
            correct: float64 [rows, 1], 0 or 1.
            windows: number of windows so far.
        """
        random = np.random.default_rng([self._baseline.seed, self.labels, 1])
        ties = random.random(correct.shape)
        evidence = float(self._streams.update(correct, ties, shown=outer_bins(correct))[0])
        changes = self._streams.changes
        # The labels of a batch are of requests of the windows before it.
        self._history.total[_WINDOWS] = windows
        sums = np.array([len(correct), correct.sum(), 0.0])
        self._history.add(self.labels, sums, changes.candidates)
        self.labels += 1
        before = self._history.before(int(changes.starts()[0]))
        after = self._history.total - before
        change = self._change(before, after)
        # Only a fall is a fault.
        fallen = evidence if change.how_far < 0 else 0.0
        return Judged(fallen, max(int(before[_WINDOWS]) - 1, 0), change)

    def smallest(self) -> float:
        """Return the smallest fall that would have been found by now; infinite if none."""
        edges = self._edges
        if self._streams.spacing.unsettled.any():
            return math.inf

        def binned(values: NDArray[np.float64]) -> NDArray[np.uint8]:
            ties = np.random.default_rng(self._baseline.seed).random((len(values), 1))
            return np.asarray(edges.bins(values[:, None], ties)[:, 0])

        ladder = share_ladder(self._baseline.accuracy, 1.0, (0.0, 0.0), binned)
        rows = np.array([float(self.judged)])
        found = Sensitivity(edges, [ladder], self._needed).smallest(rows)
        enough = seems_at_least(self._at_least, rows, edges.gaps.sum((1, 2)), 0.5)
        return float(max(found[0], enough[0]))

    def because(self) -> str:
        """Return why nothing can be told of the accuracy; "" if something can."""
        if not self.rows:
            return "no label has become known so far"
        if self._streams.spacing.unsettled.any():
            batch = max(self.rows // self.labels, 1)
            needed = self._streams.spacing.needed([0], batch)
            return why_unsettled(self._known(), "labels", self.rows, needed)
        if self._streams.spacing.distances[0] >= TOO_FAR:
            return "successive labels depend on each other over too many rows"
        if not self.judged:
            return f"none of {self.rows:,} labels could be judged so far"
        if math.isinf(self.smallest()):
            return f"too few labels so far ({self.judged:,})"
        return ""

    def _known(self) -> str:
        """Return what the baseline shows of how far labels depend on each other."""
        if not self._baseline.in_time_order:
            return order_of(self._baseline)
        if labels := self._baseline.correctness.labels:
            return f"the baseline shows too little ({labels:,} labels)"
        return "the baseline is of a version that did not note the order of labels"

    def state(self) -> dict[str, Any]:
        """Return what `resume` needs, JSON-able."""
        return {
            "streams": self._streams.state(),
            "history": self._history.state(),
            "labels": self.labels,
        }

    def resume(self, state: dict[str, Any]) -> None:
        """Continue from a state.

        Raises:
            ValueError: it is not a state of an accuracy.
        """
        self._streams.resume(state["streams"])
        self._history.resume(state["history"])
        self.labels = int(state["labels"])

    def _change(self, before: NDArray[np.float64], after: NDArray[np.float64]) -> Change:
        """Return the change of the accuracy, from sums before and since."""
        rows = float(self._edges.rows[0, 0])
        earlier = rows + before[_ROWS]
        was = float((rows * self._baseline.accuracy + before[_CORRECT]) / earlier)
        now = float(after[_CORRECT] / after[_ROWS]) if after[_ROWS] else was
        return share_change(
            "accuracy", ("accuracy ", ""), (was, earlier), (now, max(float(after[_ROWS]), 1.0))
        )
