"""Whether rows that come again, as in the next epoch, have the labels that they had before."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from vinedresser.data.records import Origin
from vinedresser.rules.signals.losses.compared import BatchSignal, Compared
from vinedresser.rules.signals.origins import row_origins
from vinedresser.rules.signals.outcomes.baseline import features
from vinedresser.rules.signals.rows import whole_rows
from vinedresser.store.reading.step import Step

__all__ = ["Agreement", "RowLabels"]

_Array = NDArray[np.float64]

# Maximum number of rows whose labels are kept, and of numbers in a label.
_MOST_ROWS, _MOST_NUMBERS = 2048, 256
# Minimum number of rows that came again; of fewer, many samples of a distribution may be trained.
_ROWS = 128
# Rows whose records are named.
_EXAMPLES = 3


class Agreement(NamedTuple):
    """How far the labels of rows that came again agree with their first ones.

    Attributes:
        rows: number of different rows that came again.
        share: 1 - E|a - b|^2 / (2 V), where a and b are labels of the same row (class numbers as
            one-hot vectors) and V the variance of all labels: 1 if they are equal, about 0 if they
            have nothing to do with each other. That is the largest share of the variance that any
            function of the inputs can explain (ICC(1); Shrout and Fleiss, Psychol. Bull. 86, 1979).
        error: standard error of the share.
        examples: for some of these rows the records that they were with two labels.
    """

    rows: int
    share: float
    error: float
    examples: list[tuple[Origin, Origin]]


@dataclass
class _Labels:
    """Labels of the rows of one loss.

    Attributes:
        first: first label of each row by its digest.
        again: digests of rows that came again.
        pairs: number of labels that were compared with the first one of their row.
        distance: sum of their squared distances.
        count, total, squares: number, sum and sum of squares of all labels.
        origins: records of the first labels, as far as they are known.
        examples: see `Agreement`.
    """

    first: dict[bytes, _Array] = field(default_factory=dict)
    again: set[bytes] = field(default_factory=set)
    pairs: int = 0
    distance: float = 0.0
    count: int = 0
    total: _Array = field(default_factory=lambda: np.zeros(1))
    squares: float = 0.0
    origins: dict[bytes, Origin] = field(default_factory=dict)
    examples: list[tuple[Origin, Origin]] = field(default_factory=list)


class RowLabels(BatchSignal):
    """The labels of rows that come again; only of inputs that are numbers, not ids or tokens."""

    def __init__(self) -> None:
        super().__init__()
        self._of: dict[str, _Labels] = {}

    def agreement(self, loss: str) -> Agreement | None:
        """Return how far labels of the same rows agree; None if too few rows came again."""
        seen = self._of.get(loss)
        if seen is None or len(seen.again) < _ROWS:
            return None
        variance = seen.squares / seen.count - float(((seen.total / seen.count) ** 2).sum())
        if not variance > 0:
            return None
        share = 1 - seen.distance / seen.pairs / (2 * variance)
        return Agreement(len(seen.again), share, 1 / math.sqrt(seen.pairs), seen.examples)

    def update(self, step: Step) -> None:
        """See `Signal.update`."""
        inputs = self.batches.inputs
        if step.mode != "train" or any(features(one) is None for one in inputs.values()):
            return
        rows = whole_rows(inputs)
        for compared in self.batches.paired:
            labels = _numbers(compared)
            if rows and labels is not None and len(labels) == len(rows):
                seen = self._of.setdefault(compared.loss, _Labels())
                self._add(seen, rows, labels, row_origins(step, rows))

    def _add(
        self, seen: _Labels, rows: list[bytes], labels: _Array, origins: dict[bytes, Origin]
    ) -> None:
        if seen.count and labels.shape[1] != len(seen.total):
            return
        seen.count += len(labels)
        seen.total = seen.total + labels.sum(0)
        seen.squares += float((labels**2).sum())
        for row, label in zip(rows, labels, strict=True):
            if row in seen.first:
                seen.again.add(row)
                seen.pairs += 1
                distance = float(((label - seen.first[row]) ** 2).sum())
                seen.distance += distance
                known = distance and row in origins and row in seen.origins
                if known and len(seen.examples) < _EXAMPLES:
                    seen.examples.append((seen.origins[row], origins[row]))
            elif len(seen.first) < _MOST_ROWS:
                seen.first[row] = label
                if row in origins:
                    seen.origins[row] = origins[row]


def _numbers(compared: Compared) -> _Array | None:
    """Return labels as float64 [rows, numbers]; None if they are too many or not finite."""
    classes: NDArray[Any] | None = compared.class_numbers
    if classes is not None and classes.ndim == 1 and compared.classes <= _MOST_NUMBERS:
        one_hot: _Array = np.eye(compared.classes)[classes]
        return one_hot
    labels = np.asarray(compared.labels)
    if labels.dtype.kind not in "biuf" or not labels.ndim:
        return None
    numbers = labels.reshape(len(labels), -1).astype(np.float64)
    return numbers if numbers.shape[1] <= _MOST_NUMBERS and np.isfinite(numbers).all() else None
