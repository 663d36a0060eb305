"""Rule: the inputs do not hold what they should."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from vinedresser.errors import ConfigError
from vinedresser.rules.base import Rule
from vinedresser.rules.signals.losses.compared import Batches
from vinedresser.rules.signals.outcomes.outcome import Outcome
from vinedresser.rules.signals.row_digests import row_digests
from vinedresser.rules.signals.row_positions import RowPositions
from vinedresser.store.finding import Finding

if TYPE_CHECKING:
    from vinedresser.store.reading.step import Step

__all__ = ["CorruptInputs"]

# Batches, rows and features before anything is said.
_LOOKS = 8
_ROWS = 128
_FEATURES = 8
_ROWS_OF_BATCH = 8
# Rows that are remembered, to tell those that come again.
_MOST_SEEN = 1 << 15
_COMES_AGAIN = 0.1
# Steps, and the share of a run, before which a training need not have learned anything, and the
# share of the error of guessing without which it has not.
_PATIENCE = 150
_SHARE = 0.4
_LEARNED = 0.5


class _Wrong(NamedTuple):
    """What is wrong; see `Finding`."""

    statistic: str
    value: float
    threshold: float
    confidence: float
    seen: str
    cause: str
    remedy: str


class CorruptInputs(Rule):
    """The inputs are all zero or all the same, mostly constant, or read in the wrong axis order.

    Told of a training that has removed less than half of the error of guessing after 150 steps and
    40 % of the run, or at its end, when of eight batches and 128 rows at least

    - all inputs are zero, or all rows of each batch are equal while their labels differ;
    - more than ``constant`` of the features never changed (of eight features or more);
    - the place of a row in its batch explains more than ``order`` of the variance of the rows'
      means or standard deviations (`RowPositions`), in batches whose rows were not there before.
      Shuffled rows have 0: a view where a permutation of the axes was meant puts one feature of
      all rows into each row.

    Args:
        constant: share of features.
        order: share of variance.
    """

    severity = "warning"
    fault = "corrupt_inputs"

    def __init__(self, constant: float = 0.9, order: float = 0.5) -> None:
        for name, value in (("constant", constant), ("order", order)):
            if not 0 < value < 1:
                raise ConfigError(f"{name} = {value:g}: must lie between 0 and 1")
        self.constant = constant
        self.order = order
        self.needs = ()
        self.batches = Batches()
        self.outcome = Outcome()
        self._positions = RowPositions()
        self._seen: set[bytes] = set()
        self._lows = self._highs = np.zeros(0)
        self._looks = self._rows = 0
        self._alike = True
        self._last: tuple[Step, str] | None = None
        self._over = False

    def update(self, step: Step) -> Finding | None:
        """See `Rule.update`."""
        if self._over or step.rank != 0 or step.mode != "train":
            return None
        values = _flat(self.batches.inputs)
        if values is None:
            return None
        self._last = (step, next(iter(self.batches.inputs)))
        self._take(values)
        if step.step < max(_PATIENCE, _SHARE * (self.expected_steps or 0)):
            return None
        return self._finding()

    def finish(self) -> Finding | None:
        """Return what was wrong until the end of the run."""
        return None if self._over or self._last is None else self._finding()

    def _take(self, values: NDArray[np.float64]) -> None:
        """Take in what a model was called with, [rows, features]."""
        lows, highs = values.min(0), values.max(0)
        if not self._looks:
            self._lows, self._highs = lows, highs
        if lows.shape != self._lows.shape:
            # Sequences of many lengths: none of them is a feature.
            self._over = True
            return
        self._lows, self._highs = np.minimum(self._lows, lows), np.maximum(self._highs, highs)
        self._looks += 1
        self._rows += len(values)
        self._alike &= bool((lows == highs).all()) and self._labels_differ(len(values))
        digests = set(row_digests(values))
        again = len(digests & self._seen) > _COMES_AGAIN * len(digests)
        if len(self._seen) < _MOST_SEEN:
            self._seen |= digests
            if not again and len(digests) >= _ROWS_OF_BATCH:
                self._positions.add(values)

    def _labels_differ(self, rows: int) -> bool:
        return any(
            len(one.labels) == rows and not (one.labels == one.labels[:1]).all()
            for one in self.batches.compared
        )

    def _finding(self) -> Finding | None:
        if self._looks < _LOOKS or self._rows < _ROWS or self._last is None or self._learns():
            return None
        wrong = self._nothing() or self._constant() or self._mixed()
        if wrong is None:
            return None
        self._over = True
        step, name = self._last
        reason = self.outcome.verdict().reason
        return self.found(
            step,
            since=0,
            tensor=name,
            evidence={"looks": self._looks, "rows": self._rows},
            **wrong._replace(seen=f"{wrong.seen}; {reason}" if reason else wrong.seen)._asdict(),
        )

    def _learns(self) -> bool:
        """Say whether the training comes to something all the same."""
        gains = [series.gain() for series in self.outcome.fit.of("train").values()]
        known = [gain.value for gain in gains if gain is not None]
        if known:
            return max(known) > _LEARNED
        return self.outcome.verdict().kind == "good"

    def _nothing(self) -> _Wrong | None:
        """Return what is wrong where no row differs from another."""
        zero = not self._lows.any() and not self._highs.any()
        if not zero and not self._alike:
            return None
        what = "zero" if zero else "the same in all rows of a batch"
        return _Wrong(
            "std",
            0.0,
            0.0,
            0.99,
            f"the inputs of {self._rows} rows are {what}",
            "the inputs were lost on the way: a mask, a cast to whole numbers, a division by "
            "their maximum twice, or one row copied over all",
            "look at a batch right before the model is called, and at what made it",
        )

    def _constant(self) -> _Wrong | None:
        features = len(self._lows)
        share = float((self._lows == self._highs).mean())
        if features < _FEATURES or share <= self.constant:
            return None
        return _Wrong(
            "share",
            share,
            self.constant,
            0.8,
            f"{share:.0%} of {features} features have one value in all of {self._rows} rows",
            "most of the inputs were lost: a mask or clipping, a wrong column, or a scale far "
            "beyond what the features are",
            "look at a batch right before the model is called; leave constant features out",
        )

    def _mixed(self) -> _Wrong | None:
        part = self._positions.explained()
        if self._positions.batches < _LOOKS or part <= self.order:
            return None
        return _Wrong(
            "order",
            part,
            self.order,
            0.85,
            f"the place of a row in its batch explains {part:.0%} of how rows differ in mean or "
            f"spread ({self._positions.batches} batches of different rows), where it should "
            "explain nothing",
            "batches read in the wrong order of their axes (view or reshape where a permutation "
            "was meant): each row holds parts of all, and none belongs to its label",
            "transpose or permute instead of view or reshape; check that the output for a row "
            "does not change with the other rows of its batch",
        )


def _flat(inputs: dict[str, NDArray[Any]]) -> NDArray[np.float64] | None:
    """Return all inputs side by side, [rows, features]; None where they are no such rows."""
    arrays = list(inputs.values())
    if not arrays or any(not one.ndim or one.dtype.kind not in "biuf" for one in arrays):
        return None
    if len({len(one) for one in arrays}) > 1 or len(arrays[0]) < 2:
        return None
    flat = [np.asarray(one, np.float64).reshape(len(one), -1) for one in arrays]
    values = np.concatenate(flat, axis=1)
    return values if values.shape[1] and np.isfinite(values).all() else None
