"""Rule: there is one label only, or each batch has one class only."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from vinedresser.errors import ConfigError
from vinedresser.rules.base import Rule
from vinedresser.rules.signals.losses.compared import Batches, Compared
from vinedresser.rules.signals.losses.loss_formulas import class_indices
from vinedresser.rules.signals.outcomes.fit import Fit
from vinedresser.store.finding import Finding

if TYPE_CHECKING:
    from vinedresser.store.reading.step import Step

__all__ = ["SingleLabel"]

# Of a run that is over.
_ROWS = 128
# Batches, and rows of each, before their order is judged.
_LOOKS = 20
_ROWS_OF_BATCH = 8
# Two classes may take turns on purpose, as real and generated rows do.
_FEWEST_CLASSES = 3
# A model that removes as much of the error of guessing in evaluations does not suffer.
_GOOD = 0.5
# A single label is learned at once; where it is not, it is not what is learned.
_RIGHT = 0.99


@dataclass
class _Labels:
    """The labels of one loss so far.

    Attributes:
        value: the label that all had; b"" where they differ.
        rows: of a single label.
        counts: of each class.
        looks: batches whose classes were counted.
        together: mean over them of the probability that two rows of a batch are of one class.
        learned: the last predictions were that one label.
    """

    value: bytes | None = None
    rows: int = 0
    counts: NDArray[np.float64] = field(default_factory=lambda: np.zeros(0))
    looks: int = 0
    together: float = 0.0
    learned: bool = True


class SingleLabel(Rule):
    """All labels are the same, or the batches are sorted by class.

    *Single label*: all of the first ``rows`` labels that were looked at are equal, and where they
    are classes the model says so; after so many, anything else has a share of less than 3/``rows``
    (95 %; the rule of three). The same label in each row that is never learned is none of the
    data: contrastive losses number the right one of several candidates so.

    *Sorted*: with c the probability that two rows of one batch are of the same class, in the mean
    of 20 batches, and a the same of any two rows, (c - a)/(1 - a) is above ``order``: 0 in rows
    that were shuffled, 1 where each batch has one class (Cohen's kappa of two rows of a batch,
    Educ. Psychol. Meas. 20, 1960). Of three classes or more, as long as the evaluations are not
    good all the same (half of the error of guessing removed).

    Args:
        rows: labels that are the same; of a run that is over, 128 are enough.
        order: how much more alike the labels of a batch are.
    """

    severity = "warning"
    fault = "single_label"

    def __init__(self, rows: int = 1000, order: float = 0.5) -> None:
        if rows < 1:
            raise ConfigError(f"rows = {rows}: must be at least 1")
        if not 0 < order < 1:
            raise ConfigError(f"order = {order:g}: must lie between 0 and 1")
        self.rows = rows
        self.order = order
        self.needs = ()
        self.batches = Batches()
        self.fit = Fit()
        self._labels: dict[str, _Labels] = {}
        self._last: Step | None = None
        self._fired = False

    def update(self, step: Step) -> Finding | None:
        """See `Rule.update`."""
        if self._fired or step.rank != 0 or step.mode != "train" or not self.batches.compared:
            return None
        self._last = step
        for compared in self.batches.compared:
            _count(self._labels.setdefault(compared.loss, _Labels()), compared)
        return self._single(step, self.rows) or self._sorted(step)

    def finish(self) -> Finding | None:
        """Return what is found of the labels of the whole run."""
        if self._fired or self._last is None:
            return None
        return self._single(self._last, min(self.rows, _ROWS))

    def _single(self, step: Step, rows: int) -> Finding | None:
        seen = list(self._labels.values())
        # Of several losses one may be about something that is always so.
        if any(not one.value or one.rows < rows or not one.learned for one in seen):
            return None
        if len({one.value for one in seen}) > 1:
            return None
        count = seen[0].rows
        return self._finding(
            step,
            next(iter(self._labels)),
            ("std", 0.0, 0.0),
            confidence=1 - 3 / max(count, 4),
            seen=f"all of {count} labels are the same",
            cause="only one class is there: the data were cut before they were shuffled, or the "
            "labels were read wrongly",
            remedy="look at the labels; shuffle the rows before they are split",
            evidence={"rows": count},
        )

    def _sorted(self, step: Step) -> Finding | None:
        for loss, seen in self._labels.items():
            shares = seen.counts / max(seen.counts.sum(), 1.0)
            alike = float((shares**2).sum())
            classes = int((seen.counts > 0).sum())
            if seen.looks < _LOOKS or classes < _FEWEST_CLASSES or alike > 1 - 1e-6:
                continue
            order = (seen.together - alike) / (1 - alike)
            if order <= self.order or self._good(loss):
                continue
            return self._finding(
                step,
                loss,
                ("order", order, self.order),
                confidence=0.95,
                seen=f"two rows of one batch are of the same class in {seen.together:.0%} of the "
                f"pairs, any two rows in {alike:.0%} ({seen.looks} batches, {classes} classes)",
                cause="the rows are sorted by class and not shuffled: each step unlearns the "
                "other classes",
                remedy="shuffle the rows in each epoch (shuffle=True)",
                evidence={"within_batches": seen.together, "overall": alike},
            )
        return None

    def _good(self, loss: str) -> bool:
        """Say whether the evaluations come to much all the same."""
        series = self.fit.of("eval").get(loss)
        gain = series.gain() if series else None
        return gain is not None and gain.value - 2 * gain.error > _GOOD

    def _finding(
        self,
        step: Step,
        loss: str,
        figure: tuple[str, float, float],
        **words: Any,
    ) -> Finding:
        self._fired = True
        statistic, value, threshold = figure
        return self.found(
            step,
            since=0,
            tensor=self.batches.tensor("labels", loss),
            statistic=statistic,
            value=value,
            threshold=threshold,
            **words,
        )


def _count(seen: _Labels, compared: Compared) -> None:
    """Take in the labels of a batch."""
    labels = compared.labels
    first = labels[0].tobytes()
    if not bool((labels == labels[:1]).all()) or seen.value not in (None, first):
        seen.value = b""
    elif seen.value is None:
        seen.value = first
    seen.rows += len(labels)
    predictions = compared.predictions
    classes = predictions.shape[-1] if predictions.ndim > 1 else 1
    numbers = class_indices(labels, classes) if classes > 1 else None
    if numbers is None or numbers.shape != predictions.shape[:-1]:
        return
    seen.learned = bool((predictions.argmax(-1) == numbers).mean() >= _RIGHT)
    if numbers.ndim > 1 or len(numbers) < _ROWS_OF_BATCH:
        return
    counts = np.bincount(numbers, minlength=classes).astype(np.float64)
    if seen.counts.shape != counts.shape:
        seen.counts = np.zeros(classes)
    seen.counts += counts
    seen.looks += 1
    rows = len(numbers)
    alike = float((counts * (counts - 1)).sum()) / (rows * (rows - 1))
    seen.together += (alike - seen.together) / seen.looks
