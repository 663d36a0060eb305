"""Rule: rows that the model is evaluated on are rows that it is trained on."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Any

from numpy.typing import NDArray

from vinedresser.errors import ConfigError
from vinedresser.rules.base import Rule
from vinedresser.rules.signals.losses.compared import Batches
from vinedresser.rules.signals.row_digests import row_digests
from vinedresser.store.finding import Finding

if TYPE_CHECKING:
    from collections.abc import Mapping

    from vinedresser.store.reading.step import Step

__all__ = ["DataLeakage"]

# Rows that are remembered, of training and of evaluations.
_MOST_TRAIN, _MOST_EVAL = 1 << 15, 1 << 11
# Evaluated rows that have to be found again, and how much more often than by chance.
_ROWS = 8
_TIMES = 3.0
# Evaluations in a row that have to hold such rows: some loops evaluate training rows too.
_EVALUATIONS = 3


class DataLeakage(Rule):
    """Rows of the evaluations are among the training rows.

    A row is known by a hash of all that the model was called with for it. Of E different rows of
    the evaluations, M were seen in training. Fires when M is at least 8 and more than ``share`` of
    E, each of the last three evaluations held such rows (at the end of the run each of as many as
    there were), and M is three times what chance gives.

    By chance: rows of one batch are different ones, so where two are equal, equal rows are common
    in the data. With e equal ones among the n pairs of rows in the batches, a pair is equal with a
    probability of p = (e + 3)/n at most (for e = 0 the rule of three, 95 %), and min(1, p D) E of
    the evaluated rows are equal to one of D different training rows.

    Training rows that are changed at random (augmentation) are not recognised. Inputs are captured
    until step 2000; of a set that is so large that few of its rows were seen until then, too few
    are found.

    Args:
        share: of the evaluated rows that were trained on.
    """

    severity = "warning"
    fault = "data_leakage"

    def __init__(self, share: float = 0.1) -> None:
        if not 0 < share < 1:
            raise ConfigError(f"share = {share:g}: must lie between 0 and 1")
        self.share = share
        self.needs = ()
        self.batches = Batches()
        self._train: set[bytes] = set()
        self._eval: set[bytes] = set()
        self._shares: deque[float] = deque(maxlen=_EVALUATIONS)
        self._pairs = 0
        self._equal = 0
        self._last: tuple[Step, str] | None = None
        self._fired = False

    def update(self, step: Step) -> Finding | None:
        """See `Rule.update`."""
        if self._fired or step.rank != 0 or step.mode == "predict":
            return None
        digests = _whole_rows(self.batches.inputs)
        if len(digests) < 2:
            return None
        different = set(digests)
        if step.mode == "train":
            self._count_pairs(len(digests), len(different))
            if len(self._train) < _MOST_TRAIN:
                self._train |= different
            return None
        if not different <= self._eval:
            self._count_pairs(len(digests), len(different))
        if len(self._eval) < _MOST_EVAL:
            self._eval |= different
        self._shares.append(len(different & self._train) / len(different))
        self._last = (step, next(iter(self.batches.inputs)))
        return self._finding() if len(self._shares) == _EVALUATIONS else None

    def finish(self) -> Finding | None:
        """Return what is found of a run with few evaluations."""
        return None if self._fired or self._last is None else self._finding()

    def _count_pairs(self, rows: int, different: int) -> None:
        self._pairs += rows * (rows - 1) // 2
        self._equal += rows - different

    def _finding(self) -> Finding | None:
        found, rows = len(self._eval & self._train), len(self._eval)
        if found < _ROWS or found <= self.share * rows or min(self._shares) <= self.share:
            return None
        chance = min(1.0, (self._equal + 3) / self._pairs * len(self._train)) * rows
        if found <= _TIMES * chance or self._last is None:
            return None
        self._fired = True
        step, name = self._last
        return self.found(
            step,
            since=step.step,
            tensor=name,
            statistic="share",
            value=found / rows,
            threshold=self.share,
            confidence=0.9,
            seen=f"{found} of {rows} different rows that the model was evaluated on were trained "
            f"on too (of the {len(self._train)} training rows that were looked at; at most "
            f"{chance:.2g} are expected by chance)",
            cause="the rows were copied or resampled before they were split, or training rows "
            "are evaluated",
            remedy="split first, by what belongs together, then copy or resample the training "
            "rows only; evaluate rows that the model has never seen",
            evidence={"found": found, "rows": rows, "by_chance": chance},
        )


def _whole_rows(inputs: Mapping[str, NDArray[Any]]) -> list[bytes]:
    """Return what tells each row by all of the inputs; [] where they have no rows in common."""
    if not inputs or len({len(values) if values.ndim else -1 for values in inputs.values()}) > 1:
        return []
    if any(not values.ndim or not values[:1].size for values in inputs.values()):
        return []
    parts = [row_digests(values) for values in inputs.values()]
    return [b"".join(row) for row in zip(*parts, strict=True)]
