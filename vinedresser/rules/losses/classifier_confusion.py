"""Rule: when all is learned, some classes are still taken for others."""

from __future__ import annotations

import math
from collections import deque
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from numpy.typing import NDArray

from vinedresser.errors import ConfigError
from vinedresser.rules.base import Rule
from vinedresser.rules.signals.losses.compared import Batches
from vinedresser.rules.signals.losses.confusion import confusion
from vinedresser.rules.signals.outcomes.outcome import Outcome
from vinedresser.store.finding import Finding

if TYPE_CHECKING:
    from vinedresser.store.reading.step import Step
    from vinedresser.store.records import RunRecord

__all__ = ["ClassifierConfusion"]

# Looks that make up the matrix: so many of the last quarter of the run.
_LOOKS = 32
_LATE = 0.75
# Rows of a class without which nothing is said of it.
_ROWS = 20
_SURE = 2.0
_NAMED = 3


class _Cell(NamedTuple):
    """A class that is taken for another.

    Attributes:
        truth, said: the classes.
        share: of the rows of the class.
        rows: of the class.
    """

    truth: int
    said: int
    share: float
    rows: int

    @property
    def sure(self) -> float:
        """The share that it surely has: less two standard errors."""
        return self.share - _SURE * math.sqrt(self.share * (1 - self.share) / self.rows)


class ClassifierConfusion(Rule):
    """At the end of the run, a class is taken for another in more than ``share`` of its rows.

    By the confusion matrix of the last quarter of the run (its last 32 looks), of evaluations, or
    of training where those have too few rows; of classes with at least 20 rows there, and surely
    (two standard errors of the share). An evaluation shows its first batch, so its rows are the
    same each time and count once. It is asked when the run is over, and so when learning has come
    to its end: in the course of a training classes are always mixed up. Silent where the training
    came to little (`Outcome`) or a rule has stopped it: then all classes are mixed up.

    Source: the forerunner's Confusion (a cell off the diagonal above 0.1, at any step).

    Args:
        share: of the rows of a class that are taken for one other class.
    """

    severity = "info"
    fault = "classifier_confusion"
    silent_after_stop = True

    def __init__(self, share: float = 0.1) -> None:
        if not 0 < share < 1:
            raise ConfigError(f"share = {share:g}: must lie between 0 and 1")
        self.share = share
        self.needs = ()
        self.batches = Batches()
        self.outcome = Outcome()
        self._classes: list[str] = []
        self._matrices: dict[tuple[str, str], deque[tuple[int, NDArray[np.int64]]]] = {}
        self._last: Step | None = None

    def begin(self, info: RunRecord) -> None:
        """Take note of the names of the classes."""
        self._classes = list(info.classes)

    def update(self, step: Step) -> Finding | None:
        """See `Rule.update`."""
        if step.rank == 0 and step.mode != "predict":
            for compared in self.batches.compared:
                self._last = step
                matrix = confusion(compared)
                if matrix is not None:
                    key = (step.mode, compared.loss)
                    self._matrices.setdefault(key, deque(maxlen=_LOOKS)).append((step.step, matrix))
        return None

    def finish(self) -> Finding | None:
        """Return the cells that are found when the run is over."""
        if self.outcome.final().kind == "poor":
            return None
        for mode in ("eval", "train"):
            for (one, loss), matrices in self._matrices.items():
                late = _LATE * matrices[-1][0]
                kept = [matrix for step, matrix in matrices if step >= late]
                matrix = np.sum(kept, axis=0) / (len(kept) if mode == "eval" else 1)
                if one == mode and matrix.sum(1).max() >= _ROWS:
                    return self._of(mode, loss, matrix)
        return None

    def _of(self, mode: str, loss: str, matrix: NDArray[np.float64]) -> Finding | None:
        rows = matrix.sum(1)
        cells = [
            _Cell(truth, said, matrix[truth, said] / rows[truth], int(rows[truth]))
            for truth, said in np.argwhere(matrix).tolist()
            if truth != said and rows[truth] >= _ROWS
        ]
        found = sorted((one for one in cells if one.sure > self.share), key=lambda one: -one.share)
        if not found or self._last is None:
            return None
        named = found[:_NAMED]
        words = ", ".join(
            f"{one.share:.0%} of {self._name(one.truth)} as {self._name(one.said)}" for one in named
        )
        return self.found(
            self._last,
            since=self._last.step,
            tensor=self.batches.tensor("predictions", loss),
            statistic="share",
            value=named[0].share,
            threshold=self.share,
            confidence=0.95,
            seen=f"of {matrix.sum():.0f} rows of {mode}: {words}",
            cause="the inputs hardly tell these classes apart, or some of their labels are wrong",
            remedy="look at rows of these cells; more rows of these classes, or one class of both",
            evidence={
                "cells": [[one.truth, one.said, one.share, one.rows] for one in found],
                "matrix": matrix.tolist(),
            },
        )

    def _name(self, number: int) -> str:
        return self._classes[number] if number < len(self._classes) else f"class {number}"
