"""Evaluations with labels that the training lacks, such as those of its later tasks."""

from __future__ import annotations

from collections import Counter

import numpy as np

from vinedresser.rules.signals.losses.compared import BatchSignal
from vinedresser.store.reading.step import Step

# Minimum number of training rows.
_ROWS = 64
# Minimum share of the evaluated rows, and its ratio to what is missing by chance.
_SHARE = 0.1
_TIMES = 3.0


class MissingLabels(BatchSignal):
    """Whether the training lacked labels of an evaluation since the evaluation before it.

    Of the captured labels some are missing by chance: about as large a share as that of the labels
    that were captured once (Good, Biometrika 40, 1953). Only of single losses with one class per
    row.

    Attributes:
        missing: whether a tenth of the rows of the last evaluation, and three times what is missing
            by chance, have labels that no captured row of the training had since the evaluation
            before, or among the last 64 if these are more.
    """

    def __init__(self) -> None:
        super().__init__()
        self.missing = False
        self._trained: Counter[int] = Counter()
        # Whether these labels were compared with those of an evaluation.
        self._evaluated = False

    def update(self, step: Step) -> None:
        """See `Signal.update`."""
        compared = self.batches.compared
        numbers = compared[0].class_numbers if len(compared) == 1 else None
        if numbers is None or numbers.ndim != 1:
            return
        if step.mode == "train":
            if self._evaluated:
                self._trained.clear()
            self._evaluated = False
            self._trained.update(numbers.tolist())
        elif self._trained.total() >= _ROWS:
            self._evaluated = True
            once = sum(count == 1 for count in self._trained.values())
            by_chance = (once + 1) / self._trained.total()
            share = np.isin(numbers, list(self._trained), invert=True).mean()
            self.missing = bool(share > max(_SHARE, _TIMES * by_chance))
