"""Rule: evaluated rows are among the training rows."""

from __future__ import annotations

import math
import re
from collections import defaultdict, deque
from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import islice
from typing import Any

import numpy as np
from numpy.typing import NDArray

from vinedresser.data.records import Origin
from vinedresser.rules.advice import Advice
from vinedresser.rules.base import OnceRule
from vinedresser.rules.bounds import require_between
from vinedresser.rules.need import Need
from vinedresser.rules.signals.losses.compared import Batches
from vinedresser.rules.signals.origins import as_evidence, look_at, row_origins
from vinedresser.rules.signals.rows import whole_rows
from vinedresser.store.collections.collection import TRAINED_ROWS
from vinedresser.store.finding import Finding
from vinedresser.store.reading.step import Step
from vinedresser.store.records import RunRecord

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
# Share of training rows among all rows of a set above which the set has no others, but for
# rounding and rows that were not sampled.
_ALL = 0.95
# The fold of a cross-validation with XGBoost, in the names of its sets.
_FOLD = re.compile(r"\[(fold\d+)\.")

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
_ONE_OF_SEVERAL = Advice(
    "all rows of this evaluation set are training rows, perhaps to compare its metrics with those "
    "of the other sets",
    "take the results from the other sets, and let none of these rows decide when to stop",
)
_FIXED = Advice(
    "all rows are used in each step of the training and in each evaluation",
    "compute the metrics of evaluations from other rows than the loss of the training, such as the "
    "other nodes of a graph",
)


@dataclass
class _Evaluated:
    """An evaluation set.

    Attributes:
        rows: digests of its rows.
        shares: share of training rows in each of its last evaluations.
        step: its last evaluation.
        trained: share of training rows among all of its rows; NaN if it is not known.
    """

    rows: set[bytes] = field(default_factory=set)
    shares: deque[float] = field(default_factory=lambda: deque(maxlen=_EVALUATIONS))
    step: Step | None = None
    trained: float = math.nan


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
    nodes of one graph, of which the loss uses others in training than in evaluation, or the few
    points of a curve that is fitted: "info", unless they are 64 rows or more with the same classes
    in training and evaluation. So are
    evaluations without a loss, labels or a metric, whose outputs may be references, such as the
    embeddings among which the nearest neighbours of other rows are searched, and those of a model
    whose targets are numbers in the shape of its inputs: other entries of the same rows may be
    evaluated, as in collaborative filtering.

    The evaluation sets of XGBoost are judged one by one, and the folds of a cross-validation each
    by its own training rows: "info" if all rows of a set are training rows and another has none.

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
        self.needs = (
            *self.batches.required("model_inputs"),
            Need("state", every=self.batches.every, modes=("eval",), required=False),
        )
        # The training rows of each fold ("" without folds), and evaluation sets by name.
        self._train: defaultdict[str, set[bytes]] = defaultdict(set)
        self._eval: defaultdict[str, _Evaluated] = defaultdict(_Evaluated)
        # Whether the inputs are data sets instead of arguments of a model.
        self._boosts = False
        # Values of each column; None if there are too many.
        self._values: list[set[float]] | None = []
        # Whether all training batches have the same rows; the classes of the last one, and whether
        # an evaluation has as many of the same.
        self._fixed = True
        self._classes: list[int] = []
        self._same_classes = False
        # Whether any evaluation had a loss or labels, or the run a metric.
        self._measured = False
        # Whether the targets of the training have the shape of its inputs.
        self._reconstructs = False
        self._pairs = 0
        self._equal = 0
        # Where training rows and evaluated rows come from, as far as it is known.
        self._origins: tuple[dict[bytes, Origin], dict[bytes, Origin]] = ({}, {})

    def begin(self, info: RunRecord) -> None:
        """See `Rule.begin`."""
        self._boosts = info.framework == "xgboost"

    def watch(self, step: Step) -> Finding | None:
        """See `OnceRule.watch`."""
        self._note_measures(step)
        sets: list[Mapping[str, NDArray[Any]]] = [self.batches.inputs]
        if self._boosts:
            sets = [{name: values} for name, values in self.batches.inputs.items()]
        for inputs in sets:
            digests = whole_rows(inputs)
            if len(digests) < 2:
                continue
            name = next(iter(inputs))
            if step.mode == "train":
                self._add_trained(step, self._train[_fold(name)], digests)
                self._add_values(inputs)
            else:
                self._add_evaluated(step, name, digests)
        return None if step.mode == "train" else self._first(_EVALUATIONS)

    def at_end(self) -> Finding | None:
        """Return the finding for a run with few evaluations."""
        return self._first(1)

    def _first(self, evaluations: int) -> Finding | None:
        """Return the finding for the first set with training rows and that many evaluations."""
        found = (
            self._finding(name, one)
            for name, one in self._eval.items()
            if len(one.shares) >= evaluations
        )
        return next((one for one in found if one is not None), None)

    def _add_trained(self, step: Step, known: set[bytes], digests: list[bytes]) -> None:
        different = set(digests)
        self._count_pairs(len(digests), len(different))
        self._fixed &= not known or different == known
        if len(known) < _MOST_TRAIN:
            known |= different
            self._origins[0].update(row_origins(step, digests))
        self._reconstructs |= self._rows_to_rows()

    def _add_evaluated(self, step: Step, name: str, digests: list[bytes]) -> None:
        seen, different = self._eval[name], set(digests)
        if not different <= seen.rows:
            self._count_pairs(len(digests), len(different))
        if len(seen.rows) < _MOST_EVAL:
            seen.rows |= different
            self._origins[1].update(row_origins(step, digests))
        seen.shares.append(len(different & self._train[_fold(name)]) / len(different))
        seen.step = step
        # The name without "inputs/batch[" and "]".
        share = step.scalars.get(f"{TRAINED_ROWS}{name.partition('[')[2][:-1]}")
        seen.trained = seen.trained if share is None else share

    def _note_measures(self, step: Step) -> None:
        evaluated = step.mode == "eval" and (
            bool(self.batches.compared) or bool(step.scalars_of("losses"))
        )
        self._measured |= evaluated or bool(step.scalars_of("metrics"))
        numbers = [one.class_numbers for one in self.batches.paired if not one.complete]
        classes = [] if len(numbers) != 1 or numbers[0] is None else numbers[0].ravel().tolist()
        if step.mode == "train" and self.batches.paired:
            self._classes = classes
        elif classes:
            self._same_classes |= classes == self._classes

    def _add_values(self, given: Mapping[str, NDArray[Any]]) -> None:
        """Collect the values of the columns of a training batch."""
        inputs = list(given.values())
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
        trained = max(map(len, self._train.values()))
        # Functions of binary columns are learned from all rows.
        few = kinds <= _FEW_KINDS or max(map(len, self._values)) <= _BINARY
        return few or trained >= _COMPLETE * kinds

    def _count_pairs(self, rows: int, different: int) -> None:
        self._pairs += rows * (rows - 1) // 2
        self._equal += rows - different

    def _finding(self, name: str, seen: _Evaluated) -> Finding | None:
        train = self._train[_fold(name)]
        found, rows = len(seen.rows & train), len(seen.rows)
        if found < _ROWS or found <= self.share * rows or min(seen.shares) <= self.share:
            return None
        chance = min(1.0, (self._equal + 3) / self._pairs * len(train)) * rows
        if found <= _TIMES * chance or seen.step is None or self._is_complete():
            return None
        step = seen.step
        same = self._fixed and found == rows and not self._same_classes
        told = _RECONSTRUCTED if self._reconstructs else _LEAK
        advice = _FIXED if same else told if self._measured else _UNMEASURED
        several = len(self._eval) > 1
        clean = any(
            max(one.shares) <= self.share and _fold(other) == _fold(name)
            for other, one in self._eval.items()
        )
        if several and clean and seen.trained > _ALL:
            advice = _ONE_OF_SEVERAL
        pairs = self._examples()
        of = f" of {name}" if several else ""
        share = f", and about {seen.trained:.0%} of all of its rows"
        whole = "" if math.isnan(seen.trained) else share
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
            seen=f"{found} of {rows} distinct evaluated rows{of} are also training rows (out of "
            f"{len(train)} captured training rows; at most {chance:.2g} expected by chance)"
            f"{whole}{examples}",
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


def _fold(name: str) -> str:
    """Return the fold of a data set, such as "fold0"; "" without folds."""
    match = _FOLD.search(name)
    return match[1] if match else ""
