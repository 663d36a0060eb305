"""Rule: the labels say nothing, or the model is perfect before it can have learned."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from vinedresser.capture.finding import Finding
from vinedresser.errors import ConfigError
from vinedresser.rules.base import Rule
from vinedresser.rules.signals.compared import Batches, Compared
from vinedresser.rules.signals.loss_formulas import class_indices

if TYPE_CHECKING:
    from vinedresser.capture.store.step import Step

__all__ = ["PerfectAtOnce"]

# Rows that are to be perfect.
_ROWS = 128


class PerfectAtOnce(Rule):
    """All labels are the same, or the predictions are perfect within the first steps.

    *Single label*: all of the first ``rows`` labels that were looked at are equal; after so many,
    anything else has a share of less than 3/``rows`` (95 %; the rule of three). *Leak*: 128
    rows one after the other have the right class within the first ``steps`` steps. Easy tasks do
    that too, so it is a hint of severity "info".

    Args:
        rows: labels that are the same; of a run that is over, 128 are enough.
        steps: at the beginning, in which nothing is to be perfect.
    """

    severity = "warning"

    def __init__(self, rows: int = 1000, steps: int = 30) -> None:
        if rows < 1:
            raise ConfigError(f"rows = {rows}: must be at least 1")
        if steps < 0:
            raise ConfigError(f"steps = {steps}: must not be negative")
        self.rows = rows
        self.steps = steps
        self.needs = ()
        self.batches = Batches()
        self._single: dict[str, tuple[bytes, int]] = {}
        self._right: dict[str, int] = {}
        self._last: Step | None = None
        self._fired = False

    def update(self, step: Step) -> Finding | None:
        """See `Rule.update`."""
        if self._fired or step.rank != 0 or step.mode != "train":
            return None
        self._last = step
        for compared in self.batches.compared:
            self._count(compared)
        return self._single_label(step, self.rows) or self._perfect(step)

    def finish(self) -> Finding | None:
        """Return what is found of the labels of the whole run."""
        if self._fired or self._last is None:
            return None
        return self._single_label(self._last, min(self.rows, _ROWS))

    def _count(self, compared: Compared) -> None:
        """Count the labels of a loss as long as all are the same."""
        labels = compared.labels
        same = bool((labels == labels[:1]).all())
        value, count = self._single.get(compared.loss, (labels[0].tobytes(), 0))
        if count < 0 or not same or labels[0].tobytes() != value:
            self._single[compared.loss] = (value, -1)
        else:
            self._single[compared.loss] = (value, count + len(labels))

    def _single_label(self, step: Step, rows: int) -> Finding | None:
        # Of several losses one may be about something that is always so.
        if not self._single or any(count < rows for _, count in self._single.values()):
            return None
        self._fired = True
        loss, (_, count) = next(iter(self._single.items()))
        return self.found(
            step,
            since=0,
            tensor=self.batches.tensor("labels", loss),
            statistic="std",
            value=0.0,
            threshold=0.0,
            confidence=1 - 3 / count,
            seen=f"all of {count} labels are the same",
            cause="only one class is there: the data were cut before they were shuffled, or the "
            "labels were read wrongly",
            remedy="look at the labels; shuffle the rows before they are split",
            evidence={"rows": count},
            fault="single_label",
        )

    def _perfect(self, step: Step) -> Finding | None:
        if step.step > self.steps:
            return None
        for compared in self.batches.compared:
            self._right[compared.loss] = _right(compared, self._right.get(compared.loss, 0))
        loss, rows = max(self._right.items(), key=lambda one: one[1], default=("", 0))
        if rows < _ROWS:
            return None
        self._fired = True
        finding = self.found(
            step,
            since=0,
            tensor=self.batches.tensor("predictions", loss),
            statistic="rows",
            value=rows,
            threshold=_ROWS,
            confidence=0.6,
            seen=f"after {step.step} steps {rows} predictions in a row are right",
            cause="the inputs hold the labels, the rows were trained on before, or the task is "
            "very easy",
            remedy="look for an input that follows from the label",
            evidence={"rows": rows},
            fault="data_leakage",
        )
        return replace(finding, severity="info")


def _right(compared: Compared, before: int) -> int:
    """Return how many rows in a row have the right class, with those before."""
    classes = compared.predictions.shape[-1] if compared.predictions.ndim > 1 else 1
    numbers = class_indices(compared.labels, classes) if classes > 1 else None
    if numbers is None or numbers.shape != compared.predictions.shape[:-1]:
        return 0
    perfect = bool((compared.predictions.argmax(-1) == numbers).all())
    return before + numbers.size if perfect and len(set(numbers.ravel().tolist())) > 1 else 0
