"""Rows that come again: a few that are all of a training, or many with other labels each time."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from vinedresser.rules.signals.losses.compared import Compared
from vinedresser.rules.signals.origins import as_evidence, look_at
from vinedresser.rules.signals.outcomes.row_labels import Agreement
from vinedresser.rules.signals.rows import whole_rows
from vinedresser.rules.symptom import Symptom

__all__ = ["OF_ROWS", "RepeatedRows", "other_labels"]

# Minimum number of training batches, and maximum number of different rows in all of them.
_BATCHES, _FEW = 20, 32
# Minimum number of different evaluated rows that are no training rows, also as a multiple of the
# training rows: there are more rows to train on.
_OTHERS, _TIMES = 32, 2
# Copies of each row within a batch that a sampler of rows does not make.
_COPIES = 2
# Relative difference of equal labels: some are captured by what the loss saves, with rounding.
_ROUNDING = 1e-4
# Minimum number of features: measurements are repeated for the same few numbers.
_FEATURES = 3
# Share of the variance of the labels below which they are not those of their rows, and its name.
_APART, OF_ROWS = 0.25, "share_of_variance"
_SURE = 2.0


class RepeatedRows:
    """Counts different rows of training batches and of evaluations; bounded memory.

    At most 64 rows of a batch are captured, so only far fewer rows show that a batch has no more.
    Repeated measurements, which have equal inputs and different labels, do not count.
    """

    def __init__(self) -> None:
        # Training rows with their label, if it is known, and evaluated rows.
        self._train: dict[bytes, NDArray[Any] | None] = {}
        self._evaluated: set[bytes] = set()
        self._names: tuple[str, ...] = ()
        self._batches = 0
        self._copied = True
        self._over = False

    def train(self, inputs: Mapping[str, NDArray[Any]], compared: Sequence[Compared]) -> None:
        """Process a training batch.

        Args:
            inputs: inputs of the model by name, [rows, ...].
            compared: labels and predictions of each loss.
        """
        if self._over:
            return
        rows = whole_rows(inputs)
        names = tuple(sorted(inputs))
        size = sum(int(np.prod(values.shape[1:])) for values in inputs.values() if values.ndim)
        labels = next((one.labels for one in compared if len(one.labels) == len(rows)), None)
        if len(rows) < 2 or size < _FEATURES or (self._names and names != self._names):
            self._over = True
            return
        self._names = names
        self._batches += 1
        self._copied &= len(rows) >= _COPIES * len(set(rows))
        for place, row in enumerate(rows):
            label = None if labels is None else labels[place]
            self._over |= not _alike(self._train.setdefault(row, label), label)
        self._over |= len(self._train) > _FEW

    def evaluate(self, inputs: Mapping[str, NDArray[Any]]) -> None:
        """Process a batch of an evaluation; see `train`."""
        if not self._over and tuple(sorted(inputs)) == self._names:
            self._evaluated |= set(whole_rows(inputs)) - self._train.keys()
            # More are not needed.
            self._evaluated = set(sorted(self._evaluated)[: _TIMES * _FEW])

    def symptom(self, name: str) -> Symptom | None:
        """Return the symptom; None if there are many rows, or no other rows to train on.

        Unless each batch has copies of its rows, they may be all rows that there are: then its
        fault is `overfitting`.

        Args:
            name: full name of the inputs.
        """
        rows, others = len(self._train), len(self._evaluated - self._train.keys())
        if self._over or self._batches < _BATCHES or others < max(_OTHERS, _TIMES * rows):
            return None
        copied = ", several times in each," if self._copied else ""
        return Symptom(
            name,
            "rows",
            rows,
            others,
            0.9,
            f"{self._batches} batches{copied} had the same {rows} rows, while {others} other rows "
            "or more are evaluated",
            "the training repeats a few rows and learns them by heart: the loader returns the same "
            "batch again and again, or rows were copied instead of drawn from all",
            "iterate over the loader instead of asking for its first batch; compare the number of "
            "different rows before and after they are resampled",
            fault=None if self._copied else "overfitting",
        )


def _alike(one: NDArray[Any] | None, other: NDArray[Any] | None) -> bool:
    """Return whether two labels are equal, as far as both are known."""
    if one is None or other is None:
        return True
    one, other = np.asarray(one, np.float64), np.asarray(other, np.float64)
    if one.shape != other.shape:
        return False
    close = _ROUNDING * max(1e-30, float(np.abs(one).max(initial=0.0)))
    return bool(np.allclose(one, other, rtol=_ROUNDING, atol=close, equal_nan=True))


def other_labels(seen: Agreement, tensor: str, remedy: str) -> Symptom | None:
    """Return the symptom of rows that have other labels each time they come; None otherwise.

    Args:
        tensor: full name of the labels.
        remedy: what to change.
    """
    if seen.share + _SURE * seen.error > _APART:
        return None
    records = list(dict.fromkeys(one for pair in seen.examples for one in pair))
    such = f"; such as {', '.join(map(str, records))}" if records else ""
    return Symptom(
        tensor,
        OF_ROWS,
        seen.share,
        _APART,
        0.99,
        f"{seen.rows} rows came again, with labels that have nothing to do with their first ones: "
        f"which row it is explains {max(seen.share, 0):.0%} of the variance of the labels, so "
        f"nothing can predict them{such}",
        "the labels do not belong to the rows: they are shuffled, sorted or drawn anew apart from "
        "the inputs, as in each batch or epoch",
        remedy + look_at(records[:1]),
        evidence={"records": as_evidence(records)} if records else {},
    )
