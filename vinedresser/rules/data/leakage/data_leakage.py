"""Rule: evaluated rows are among the training rows."""

from __future__ import annotations

import math
from collections import deque
from itertools import islice

import numpy as np

from vinedresser.data.records import Origin
from vinedresser.rules.advice import Advice
from vinedresser.rules.base import OnceRule
from vinedresser.rules.bounds import require_between
from vinedresser.rules.signals.losses.compared import Batches
from vinedresser.rules.signals.origins import as_evidence, look_at, row_origins
from vinedresser.rules.signals.rows import whole_rows
from vinedresser.store.finding import Finding
from vinedresser.store.reading.step import Step

# Maximum number of stored training rows and evaluated rows.
_MOST_TRAIN, _MOST_EVAL = 1 << 15, 1 << 11
# Minimum number of evaluated rows among the training rows, and their ratio to chance.
_ROWS = 8
_TIMES = 3.0
# Consecutive evaluations that must contain such rows: some loops also evaluate training rows.
_EVALUATIONS = 3
# Maximum number of columns and of their values of a truth table, and minimum share of its rows.
_COLUMNS, _VALUES = 64, 4
_COMPLETE = 0.5
# Number of different rows up to which equal rows are common.
_FEW_KINDS = 1 << 12
_BINARY = 2
# Rows whose records are named.
_EXAMPLES = 3

_LEAK = Advice(
    "rows were duplicated or resampled before the split, or training rows are evaluated",
    "split first, keeping related rows together, then duplicate or resample only the training "
    "rows; evaluate rows that the model has never seen",
)
_UNMEASURED = Advice(
    "training rows are evaluated, perhaps as references for others, such as those whose nearest "
    "neighbours are searched among them",
    "compute the metrics of evaluations from rows that the model has never seen",
)
_RECONSTRUCTED = Advice(
    "training rows are evaluated, perhaps by entries that the training does not use, such as "
    "hidden ratings",
    "compute the metrics of evaluations from rows or entries that the model has never seen",
)
_FIXED = Advice(
    "all rows are used in each step of the training and in each evaluation",
    "compute the metrics of evaluations from other rows than the loss of the training, such as the "
    "other nodes of a graph",
)


class DataLeakage(OnceRule):
    """Evaluated rows are among the training rows.

    A row is identified by a hash of all its model inputs. Out of E distinct evaluated rows, M were
    seen in training. Fires when M is at least 8 and more than ``share`` of E, each of the last
    three evaluations contained such rows (at the end of the run, each evaluation if there were
    fewer), and M is three times the number expected by chance.

    Expected by chance: rows of one batch are different samples, so equal rows within a batch mean
    that equal rows are common in the data. With e equal pairs among the n pairs of rows in the
    batches, the probability of equality is at most p = (e + 3)/n (for e = 0 the rule of three, 95
    %), and min(1, p D) E of the evaluated rows equal one of D distinct training rows. A truth table
    has no other rows: no finding if the columns (at most 64 with at most 4 values each) have two
    values each or allow at most 4096 different rows, or the training rows are at least half of all
    that they allow.

    If each step trains on the same rows, and all evaluated rows are among them, they may be the
    nodes of one graph, of which the loss uses others in training than in evaluation: "info". So are
    evaluations without a loss, labels or a metric, whose outputs may be references, such as the
    embeddings among which the nearest neighbours of other rows are searched, and those of a model
    whose targets are numbers in the shape of its inputs: other entries of the same rows may be
    evaluated, as in collaborative filtering.

    Randomly changed training rows (augmentation) are not recognised. Inputs are captured until step
    2000; in a data set so large that only few of its rows were seen by then, too few matches are
    found.

    Args:
        share: share of evaluated rows that were trained on.
    """

    severity = "warning"
    fault = "data_leakage"
    stage = "data"
    consequences = ("outcome", "overfitting")
    position = 80
    former_names = ("perfect_at_once",)
    left_out_of = ("adversarial",)
    modes = ("train", "eval")

    def __init__(self, share: float = 0.1) -> None:
        require_between(0, 1, share=share)
        self.share = share
        self.batches = Batches()
        self.needs = self.batches.required("model_inputs")
        self._train: set[bytes] = set()
        self._eval: set[bytes] = set()
        self._shares: deque[float] = deque(maxlen=_EVALUATIONS)
        # Values of each column; None if there are too many.
        self._values: list[set[float]] | None = []
        # Whether all training batches have the same rows.
        self._fixed = True
        # Whether any evaluation had a loss or labels, or the run a metric.
        self._measured = False
        # Whether the targets of the training have the shape of its inputs.
        self._reconstructs = False
        self._pairs = 0
        self._equal = 0
        self._last: tuple[Step, str] | None = None
        # Where training rows and evaluated rows come from, as far as it is known.
        self._origins: tuple[dict[bytes, Origin], dict[bytes, Origin]] = ({}, {})

    def watch(self, step: Step) -> Finding | None:
        """See `OnceRule.watch`."""
        self._note_measures(step)
        digests = whole_rows(self.batches.inputs)
        if len(digests) < 2:
            return None
        different = set(digests)
        if step.mode == "train":
            self._count_pairs(len(digests), len(different))
            self._fixed &= not self._train or different == self._train
            if len(self._train) < _MOST_TRAIN:
                self._train |= different
                self._origins[0].update(row_origins(step, digests))
            self._add_values()
            self._reconstructs |= self._rows_to_rows()
            return None
        if not different <= self._eval:
            self._count_pairs(len(digests), len(different))
        if len(self._eval) < _MOST_EVAL:
            self._eval |= different
            self._origins[1].update(row_origins(step, digests))
        self._shares.append(len(different & self._train) / len(different))
        self._last = (step, next(iter(self.batches.inputs)))
        return self._finding() if len(self._shares) == _EVALUATIONS else None

    def at_end(self) -> Finding | None:
        """Return the finding for a run with few evaluations."""
        return None if self._last is None else self._finding()

    def _note_measures(self, step: Step) -> None:
        evaluated = step.mode == "eval" and (
            bool(self.batches.compared) or bool(step.scalars_of("losses"))
        )
        self._measured |= evaluated or bool(step.scalars_of("metrics"))

    def _add_values(self) -> None:
        """Collect the values of the columns of a training batch."""
        inputs = list(self.batches.inputs.values())
        table = len(inputs) == 1 and inputs[0].ndim == 2 and inputs[0].shape[1] <= _COLUMNS
        if self._values is None or not table:
            self._values = None
            return
        columns = inputs[0].T
        self._values = self._values or [set() for _ in columns]
        if len(columns) != len(self._values):
            self._values = None
            return
        for values, column in zip(self._values, columns, strict=True):
            values.update(np.unique(column).tolist())
        if max(map(len, self._values), default=0) > _VALUES:
            self._values = None

    def _rows_to_rows(self) -> bool:
        """Return whether targets are numbers in the shape of a single input."""
        inputs = list(self.batches.inputs.values())
        if len(inputs) != 1 or inputs[0].dtype.kind != "f" or inputs[0].ndim < 2:
            return False
        shape = inputs[0].shape[1:]
        labels = (one.labels for one in self.batches.compared)
        return any(label.dtype.kind == "f" and label.shape[1:] == shape != (1,) for label in labels)

    def _is_complete(self) -> bool:
        """Return whether there can be few rows, or the training rows are most of them."""
        if not self._values:
            return False
        kinds = math.prod(map(len, self._values))
        # Functions of binary columns are learned from all rows.
        few = kinds <= _FEW_KINDS or max(map(len, self._values)) <= _BINARY
        return few or len(self._train) >= _COMPLETE * kinds

    def _count_pairs(self, rows: int, different: int) -> None:
        self._pairs += rows * (rows - 1) // 2
        self._equal += rows - different

    def _finding(self) -> Finding | None:
        found, rows = len(self._eval & self._train), len(self._eval)
        if found < _ROWS or found <= self.share * rows or min(self._shares) <= self.share:
            return None
        chance = min(1.0, (self._equal + 3) / self._pairs * len(self._train)) * rows
        if found <= _TIMES * chance or self._last is None or self._is_complete():
            return None
        step, name = self._last
        same = self._fixed and found == rows
        told = _RECONSTRUCTED if self._reconstructs else _LEAK
        advice = _FIXED if same else told if self._measured else _UNMEASURED
        pairs = self._examples()
        examples = "".join(f"; {evaluated} is {trained}" for trained, evaluated in pairs)
        return self.found(
            step,
            since=step.step,
            severity=None if advice is _LEAK else "info",
            tensor=name,
            statistic="share",
            value=found / rows,
            threshold=self.share,
            confidence=0.9,
            seen=f"{found} of {rows} distinct evaluated rows are also training rows (out of "
            f"{len(self._train)} captured training rows; at most {chance:.2g} expected by chance)"
            f"{examples}",
            cause=advice.cause,
            remedy=advice.remedy + look_at([one for pair in pairs[:1] for one in pair]),
            evidence={"found": found, "rows": rows, "by_chance": chance}
            | ({"records": [as_evidence(pair) for pair in pairs]} if pairs else {}),
        )

    def _examples(self) -> list[tuple[Origin, Origin]]:
        """Return origins of rows in training and in an evaluation."""
        trained, evaluated = self._origins
        both = (row for row in evaluated if row in trained)
        return [(trained[row], evaluated[row]) for row in islice(both, _EXAMPLES)]
