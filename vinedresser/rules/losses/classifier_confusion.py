"""Rule: at the end of the training, some classes are still confused."""

from __future__ import annotations

import math
from collections import deque
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from vinedresser.rules.base import OnceRule
from vinedresser.rules.bounds import require_between
from vinedresser.rules.signals.losses.compared import Batches
from vinedresser.rules.signals.outcomes.outcome import Outcome
from vinedresser.store.finding import Finding
from vinedresser.store.reading.step import Step
from vinedresser.store.records import RunRecord

# Number of checks in the matrix, within the last quarter of the run.
_CHECKS = 32
_LATE = 0.75
# Minimum number of rows of a class.
_ROWS = 20
_SURE = 2.0
_NAMED = 3
# Share of the rows that are predicted as a class that no row has, above which these are no classes.
_NAMELESS = 0.5


class _Cell(NamedTuple):
    """A class that is predicted as another class.

    Attributes:
        truth, predicted: the true and the predicted class.
        share: share of the rows of the true class.
        rows: number of rows of the true class.
    """

    truth: int
    predicted: int
    share: float
    rows: int

    @property
    def sure(self) -> float:
        """Lower bound of the share: two standard errors below it."""
        return self.share - _SURE * math.sqrt(self.share * (1 - self.share) / self.rows)


class ClassifierConfusion(OnceRule):
    """At the end of the run, a class is predicted as another in more than ``share`` of its rows.

    The rule computes the confusion matrix over the last quarter of the run (at most its last 32
    checks), on evaluations, or on training data if evaluations have too few rows. A class needs at
    least 20 rows, and the share must exceed the threshold by two standard errors. Each evaluation
    shows its first batch, so its rows are always the same and count once. The rule fires only at
    the end of the run: classes are always confused during training. It does not apply if the
    outcome is poor (`Outcome`) or another rule has stopped the run, since all classes are confused
    then; nor to outputs most of which are greatest in a column that no label names: they are no
    scores of classes, but for instance embeddings, of which a loss compares those of equal labels.

    Source: Confusion of the predecessor project (an off-diagonal cell above 0.1, at any step).

    Args:
        share: share of the rows of a class that are predicted as one other class.
    """

    severity = "info"
    fault = "classifier_confusion"
    stage = "outcome"
    position = 440
    predecessors = ("confusion",)
    left_out_of = ("regression", "autoencoder", "language_model")
    modes = ("train", "eval")
    silent_after_stop = True

    def __init__(self, share: float = 0.1) -> None:
        require_between(0, 1, share=share)
        self.share = share
        self.batches = Batches()
        self.needs = self.batches.required("labels", "predictions")
        self.outcome = Outcome()
        self._classes: list[str] = []
        self._matrices: dict[tuple[str, str], deque[tuple[int, NDArray[np.int64]]]] = {}
        self._last: Step | None = None

    def begin(self, info: RunRecord) -> None:
        """Read the class names."""
        self._classes = list(info.classes)

    def watch(self, step: Step) -> None:
        """See `OnceRule.watch`."""
        for compared in self.batches.compared:
            self._last = step
            if (matrix := compared.confusion) is not None:
                matrices = self._matrices.setdefault(
                    (step.mode, compared.loss), deque(maxlen=_CHECKS)
                )
                matrices.append((step.step, matrix))

    def at_end(self) -> Finding | None:
        """Return the confused classes at the end of the run."""
        if self.outcome.final().kind == "poor":
            return None
        for mode in ("eval", "train"):
            for (one, loss), matrices in self._matrices.items():
                late = _LATE * matrices[-1][0]
                kept = [matrix for step, matrix in matrices if step >= late]
                # Where their number differs, as in contrastive training, rows are the classes.
                if len({matrix.shape for matrix in kept}) > 1:
                    continue
                matrix = np.sum(kept, axis=0) / (len(kept) if mode == "eval" else 1)
                if one == mode and matrix.sum(1).max() >= _ROWS:
                    return self._of(mode, loss, matrix)
        return None

    def _of(self, mode: str, loss: str, matrix: NDArray[np.float64]) -> Finding | None:
        rows = matrix.sum(1)
        if matrix[:, rows == 0].sum() > _NAMELESS * matrix.sum():
            return None
        cells = [
            _Cell(truth, predicted, matrix[truth, predicted] / rows[truth], int(rows[truth]))
            for truth, predicted in np.argwhere(matrix).tolist()
            if truth != predicted and rows[truth] >= _ROWS
        ]
        found = sorted(
            (cell for cell in cells if cell.sure > self.share), key=lambda one: -one.share
        )
        if not found or self._last is None:
            return None
        named = found[:_NAMED]
        words = ", ".join(
            f"{one.share:.0%} of {self._name(one.truth)} as {self._name(one.predicted)}"
            for one in named
        )
        return self.found(
            self._last,
            since=self._last.step,
            tensor=self.batches.tensor("predictions", loss),
            statistic="share",
            value=named[0].share,
            threshold=self.share,
            confidence=0.95,
            seen=f"confused in {matrix.sum():.0f} rows of {mode}: {words}",
            cause="the inputs hardly distinguish these classes, or some of their labels are wrong",
            remedy="inspect the confused rows; add rows of these classes, or merge the classes",
            evidence={
                "cells": [[one.truth, one.predicted, one.share, one.rows] for one in found],
                "matrix": matrix.tolist(),
            },
        )

    def _name(self, number: int) -> str:
        return self._classes[number] if number < len(self._classes) else f"class {number}"
