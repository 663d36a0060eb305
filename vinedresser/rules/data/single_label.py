"""Rule: all labels are equal, or each batch contains a single class."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from vinedresser.rules.base import OnceRule
from vinedresser.rules.bounds import require_at_least, require_between
from vinedresser.rules.signals.losses.compared import Batches, Compared
from vinedresser.rules.signals.losses.evaluated_labels import EvaluatedLabels
from vinedresser.rules.signals.outcomes.fit import Fit
from vinedresser.rules.signals.outcomes.learning_outcome import several_trained
from vinedresser.store.finding import Finding
from vinedresser.store.reading.step import Step
from vinedresser.store.records import RunRecord

# Minimum number of rows at the end of the run.
_ROWS = 128
# Minimum number of batches, and of rows in each, to judge their order.
_BATCHES = 20
_ROWS_OF_BATCH = 8
# Number of evaluations, unless the run ends before.
_EVALUATIONS = 3
# Two classes may alternate on purpose, such as real and generated rows.
_FEWEST_CLASSES = 3
# A model with this gain in evaluations does not suffer from the order.
_GOOD = 0.5
# A single label is learned at once; otherwise the model learns something else.
_RIGHT = 0.99
# Relative difference between two computations of one loss.
_SAME = 1e-3


@dataclass
class _Labels:
    """Labels of one loss so far.

    Attributes:
        value: label that all rows share; b"" if they differ.
        counts: number of rows of each class, float64 [classes].
        batches: number of batches whose classes were counted.
        together: mean probability that two rows of one of these batches have the same class.
        learned: whether the last predictions were this one label.
    """

    value: bytes | None = None
    rows: int = 0
    counts: NDArray[np.float64] = field(default_factory=lambda: np.zeros(0))
    batches: int = 0
    together: float = 0.0
    learned: bool = True


class SingleLabel(OnceRule):
    """All labels are equal, those of the evaluations are, or the batches are sorted by class.

    *Single label*: the first ``rows`` captured labels are all equal and, if they are classes, the
    model predicts them. Any other label then has a share of less than 3/``rows`` (95 %; rule of
    three). A constant label that is never learned is no fault of the data: contrastive losses
    number the right candidate that way; adversaries (several models, each with an optimizer) label
    what is real and what is not. Neither is that of a part of a loss: another call of the same loss
    may have the other labels, as with negative samples.

    *Sorted*: with c the mean probability over 20 batches that two rows of one batch have the same
    class, and a the same probability for any two rows, (c - a)/(1 - a) is above ``order``. This is
    0 for shuffled rows and 1 if each batch has one class (Cohen's kappa of two rows of a batch,
    Educ. Psychol. Meas. 20, 1960). Applies to three or more classes, unless evaluations are good
    anyway (half of the chance-level error removed).

    *Evaluated*: all labels of the last three evaluations (at the end, of the only ones) are equal
    (`EvaluatedLabels`), which has a probability below 1e-6 for rows drawn like those of the
    training.

    Args:
        rows: number of equal labels; 128 at the end of the run.
        order: excess similarity of the labels of a batch.
    """

    severity = "warning"
    fault = "single_label"
    stage = "data"
    consequences = ("outcome", "data_leakage", "overfitting")
    position = 50
    left_out_of = ("adversarial",)
    modes = ("train", "eval")

    def __init__(self, rows: int = 1000, order: float = 0.5) -> None:
        require_at_least(1, rows=rows)
        require_between(0, 1, order=order)
        self.rows = rows
        self.order = order
        self.batches = Batches()
        self.evaluated = EvaluatedLabels()
        self.needs = self.batches.required("labels")
        self.fit = Fit()
        self._labels: dict[str, _Labels] = {}
        self._last: Step | None = None
        self._adversaries = False
        # Whether there is a loss that is not one of those whose labels are known.
        self._others = False

    def on_record(self, info: RunRecord) -> None:
        """Read whether several models are trained."""
        self._adversaries = several_trained(info)

    def watch(self, step: Step) -> Finding | None:
        """See `OnceRule.watch`."""
        if step.mode == "eval":
            return self._evaluated(_EVALUATIONS)
        if not self.batches.compared:
            return None
        self._last = step
        self._others |= _has_others(step, self.batches.compared)
        ordered = {one.loss for one in self.batches.paired if one.labels.ndim <= 1}
        for compared in self.batches.compared:
            seen = self._labels.setdefault(compared.loss, _Labels())
            _count(seen, compared, ordered=compared.loss in ordered)
        return self._single(step, self.rows) or self._sorted(step)

    def at_end(self) -> Finding | None:
        """Return the finding for the labels of the whole run."""
        if self._last is None:
            return None
        return self._single(self._last, min(self.rows, _ROWS)) or self._evaluated(1)

    def _evaluated(self, evaluations: int) -> Finding | None:
        equal = None if self._adversaries else self.evaluated.equal
        if equal is None or equal.evaluations < evaluations:
            return None
        return self._finding(
            equal.step,
            equal.loss,
            ("first_label", 1.0, 1.0),
            confidence=0.95,
            seen=f"all labels of the evaluations are equal ({equal.label}), but only "
            f"{equal.share:.0%} of {equal.trained} captured training labels are that",
            cause="the rows were sorted by label when they were split, so the evaluations have "
            "only one class, and the training lacks rows of it",
            remedy="shuffle the rows before splitting them, or stratify (train_test_split(..., "
            "stratify=y)); validation_split of Keras takes the last rows before it shuffles",
            evidence={"evaluations": equal.evaluations, "share": equal.share},
        )

    def _single(self, step: Step, rows: int) -> Finding | None:
        several = self._adversaries or self._others
        seen = [] if several else list(self._labels.values())
        # One of several losses may have a constant target.
        if any(not one.value or one.rows < rows or not one.learned for one in seen):
            return None
        if len({one.value for one in seen}) != 1:
            return None
        count = seen[0].rows
        return self._finding(
            step,
            next(iter(self._labels)),
            ("std", 0.0, 0.0),
            confidence=1 - 3 / max(count, 4),
            seen=f"all {count} labels are equal",
            cause="there is only one class: the data were truncated before shuffling, or the "
            "labels were parsed wrongly",
            remedy="inspect the labels; shuffle the rows before splitting them",
            evidence={"rows": count},
        )

    def _sorted(self, step: Step) -> Finding | None:
        for loss, seen in self._labels.items():
            shares = seen.counts / max(seen.counts.sum(), 1.0)
            alike = float((shares**2).sum())
            classes = int((seen.counts > 0).sum())
            if seen.batches < _BATCHES or classes < _FEWEST_CLASSES or alike > 1 - 1e-6:
                continue
            order = (seen.together - alike) / (1 - alike)
            if order <= self.order or self._good(loss):
                continue
            return self._finding(
                step,
                loss,
                ("order", order, self.order),
                confidence=0.95,
                seen=f"two rows of one batch have the same class in {seen.together:.0%} of the "
                f"pairs, any two rows in {alike:.0%} ({seen.batches} batches, {classes} classes)",
                cause="the rows are sorted by class and not shuffled: each step unlearns the "
                "other classes",
                remedy="shuffle the rows in each epoch (shuffle=True)",
                evidence={"within_batches": seen.together, "overall": alike},
            )
        return None

    def _good(self, loss: str) -> bool:
        """Return whether evaluations are good anyway."""
        series = self.fit.of("eval").get(loss)
        gain = series.gain() if series else None
        return gain is not None and gain.least > _GOOD

    def _finding(
        self, step: Step, loss: str, measured: tuple[str, float, float], **words: Any
    ) -> Finding:
        statistic, value, threshold = measured
        return self.found(
            step,
            since=0,
            tensor=self.batches.tensor("labels", loss),
            statistic=statistic,
            value=value,
            threshold=threshold,
            **words,
        )


def _has_others(step: Step, compared: list[Compared]) -> bool:
    """Return whether a loss of a train step is another than those with labels, such as a sum."""
    losses = step.scalars_of("losses") if step.mode == "train" else {}
    known = [losses.get(f"losses/{one.loss}") for one in compared]
    labelled = {f"losses/{one.loss}" for one in compared}
    return any(
        not any(one is not None and math.isclose(value, one, rel_tol=_SAME) for one in known)
        for name, value in losses.items()
        if name not in labelled
    )


def _count(seen: _Labels, compared: Compared, *, ordered: bool) -> None:
    """Add the labels of a batch.

    Args:
        compared: labels and predictions of the batch.
        ordered: whether there is one label for each row, whose order can be judged.
    """
    labels = compared.labels
    first = labels[0].tobytes()
    if not bool((labels == labels[:1]).all()) or seen.value not in (None, first):
        seen.value = b""
    elif seen.value is None:
        seen.value = first
    seen.rows += len(labels)
    classes, numbers = compared.classes, compared.class_numbers
    if numbers is None:
        return
    seen.learned = bool((compared.predictions.argmax(-1) == numbers).mean() >= _RIGHT)
    if not ordered or numbers.ndim > 1 or len(numbers) < _ROWS_OF_BATCH:
        return
    counts = np.bincount(numbers, minlength=classes).astype(np.float64)
    if seen.counts.shape != counts.shape:
        seen.counts = np.zeros(classes)
    seen.counts += counts
    seen.batches += 1
    rows = len(numbers)
    alike = float((counts * (counts - 1)).sum()) / (rows * (rows - 1))
    seen.together += (alike - seen.together) / seen.batches
