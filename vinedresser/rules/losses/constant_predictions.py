"""Rule: the predictions are the same for all inputs."""

from __future__ import annotations

from collections import deque
from dataclasses import replace
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from vinedresser.errors import ConfigError
from vinedresser.rules.bounds import require_between
from vinedresser.rules.signals.losses.compared import Batches, Compared
from vinedresser.rules.signals.outcomes.verdict import Verdict
from vinedresser.rules.symptom import Symptom, SymptomRule
from vinedresser.store.finding import Finding, Severity
from vinedresser.store.reading.step import Step

# Minimum number of checks and of rows.
_BATCHES = 8
_ROWS = 64
# Share of the most frequent label from which predicting only this class is no fault.
_MAJORITY = 0.95
_CONFIDENCE = 0.95
# Train steps, and share of the run, in which all predictions are the same, although the outcome is
# open; and share of the run that must be over.
_LASTING, _LASTING_SHARE = 100, 0.25
_HALF = 0.5


class _Batch(NamedTuple):
    """Statistics of one batch.

    Attributes:
        rows: number of rows.
        labels: number of rows of each class; empty for regression.
        predicted: number of rows predicted as each class; empty for regression.
        spread: standard deviation of the predictions over the rows, relative to that of the labels;
            0 if the labels are constant.
        varied: whether the labels of regression are not constant.
    """

    rows: int
    labels: NDArray[np.int64]
    predicted: NDArray[np.int64]
    spread: float
    varied: bool = False


class ConstantPredictions(SymptomRule):
    """The predictions do not depend on the inputs, or are all of one class.

    Classification: the most frequent prediction covers ``share`` of the rows, and no class is the
    label of 95 % of them. Regression and binary outputs: the standard deviation of the predictions
    over the rows is less than ``spread`` times that of the labels. Must hold over the last 8
    checks, in a training with a poor outcome (`Outcome`) that is not on a plateau. Where the
    outcome is open, as with a loss of unknown formula, warns in the second half of the run of
    predictions that have been the same, although the labels differ, for a quarter of it and for 100
    steps (at its end if its length is unknown); not for tokens, or with several optimizers, whose
    labels may be their own.

    Args:
        share: share of rows with the same predicted class.
        spread: standard deviation of predictions, relative to that of labels. A model that has
            learned something reaches the square root of its R2.
        patience: number of consecutive checks, five steps apart, with the symptom and a poor
            outcome; rules that know the cause check every 20 steps.
    """

    fault = "constant_predictions"
    stage = "outcome"
    consequences = ("not_learning", "underfitting")
    cause_unknown = True
    position = 390
    needs_poor_outcome = False

    def __init__(self, share: float = 0.99, spread: float = 0.02, patience: int = 5) -> None:
        super().__init__(patience)
        if not 0.5 < share <= 1:
            raise ConfigError(f"share = {share:g}: must lie between 0.5 and 1")
        require_between(0, 1, spread=spread)
        self.share = share
        self.spread = spread
        self.batches = Batches()
        self._recent: dict[str, deque[_Batch]] = {}
        # The last check, whatever the outcome.
        self._last: tuple[Step, Symptom] | None = None
        # First step since which all predictions are the same.
        self._since: int | None = None
        self._text = False

    def is_checked(self, step: Step) -> bool:  # noqa: ARG002 (the signal has read it)
        """See `SymptomRule.is_checked`."""
        return bool(self.batches.compared)

    def at_end(self) -> Finding | None:
        """See `OnceRule.at_end`; only the end may show that the outcome of a short run is poor."""
        if self._last is not None and self._patience.count < self.patience:
            verdict = self.verdict(ended=True)
            self._seen = self._last
            last = self._last[0].step
            poor = verdict.kind == "poor" or self._lasts(last, last, verdict)
            return self._finding(verdict) if poor else None
        return super().at_end()

    def detect(self, step: Step) -> Symptom | None:
        """See `SymptomRule.detect`."""
        found = None
        for compared in self.batches.compared:
            recent = self._recent.setdefault(compared.loss, deque(maxlen=_BATCHES))
            seen = _statistics(compared)
            if seen is not None:
                recent.append(seen)
            found = found or self._constant(
                self.batches.tensor("predictions", compared.loss), list(recent)
            )
        self._last = None if found is None else (step, found)
        self._text |= self.batches.of_text
        if found is None or not found.evidence["lasting"]:
            self._since = None
        elif self._since is None:
            self._since = step.step
        verdict = self.outcome.verdict()
        expected = self.expected_steps
        lasts = expected is not None and self._lasts(step.step, expected, verdict)
        # On a plateau before learning, a model predicts the mean.
        poor = verdict.kind == "poor" and not verdict.plateau
        return found if poor or lasts else None

    def _lasts(self, now: int, steps: int, verdict: Verdict) -> bool:
        """Return whether to warn that all predictions have been the same for long.

        Args:
            now: present step.
            steps: number of steps of the run.
            verdict: the outcome.
        """
        known = self._warning is not None or verdict.kind == "good"
        excused = known or self._text or self.outcome.progress.adversaries
        if self._since is None or excused or now < _HALF * steps:
            return False
        return now - self._since >= max(_LASTING, _LASTING_SHARE * steps)

    def _finding(self, verdict: Verdict, severity: Severity | None = None) -> Finding:
        """See `SymptomRule`; warns only, and once, if the outcome is open."""
        finding = super()._finding(verdict, severity)
        if self._since is None or "poor" in (verdict.kind, self.outcome.verdict().kind):
            return finding
        self._warning = replace(finding, since=self._since, severity=self.without_stop)
        return self._warning

    def _constant(self, tensor: str, batches: list[_Batch]) -> Symptom | None:
        rows = sum(batch.rows for batch in batches)
        if len(batches) < _BATCHES or rows < _ROWS:
            return None
        if batches[-1].predicted.size:
            predicted = _sum([batch.predicted for batch in batches]) / rows
            labels = _sum([batch.labels for batch in batches]) / rows
            most = int(predicted.argmax())
            if predicted[most] < self.share or labels.max() >= _MAJORITY:
                return None
            words = f"{predicted[most]:.0%} of {rows} rows are predicted as class {most}"
            share = float(predicted[most])
            seen = f"{words}, but only {labels[most]:.0%} are"
            return _symptom(tensor, ("share", share, self.share), seen, lasting=True)
        largest = max(batch.spread for batch in batches)
        if largest >= self.spread or not all(batch.rows > 1 for batch in batches):
            return None
        words = f"over {rows} rows the predictions vary by {largest:.1%} as much as the labels"
        # Of constant labels, nothing else can be predicted.
        lasting = all(batch.varied for batch in batches)
        return _symptom(tensor, ("spread", largest, self.spread), words, lasting=lasting)


def _sum(counts: list[NDArray[np.int64]]) -> NDArray[np.int64]:
    """Return the sum of counts; batches whose rows are the classes may have fewer of them."""
    total = np.zeros(max(len(one) for one in counts), np.int64)
    for one in counts:
        total[: len(one)] += one
    return total


def _symptom(
    tensor: str, measured: tuple[str, float, float], seen: str, *, lasting: bool
) -> Symptom:
    """Return the symptom.

    Args:
        tensor: name of the predictions.
        measured: statistic, value and threshold.
        seen: what was seen, in words.
        lasting: whether it counts in an open outcome if it lasts.
    """
    statistic, value, threshold = measured
    return Symptom(
        tensor=tensor,
        statistic=statistic,
        value=value,
        threshold=threshold,
        confidence=_CONFIDENCE,
        seen=seen,
        cause="the output does not depend on the input, and the last bias has learned the most "
        "frequent label or the mean of them: dead or saturated units, too large steps, or inputs "
        "unrelated to the labels",
        remedy="standardise the inputs to mean 0 and variance 1, divide the learning rate by 10; "
        "train on a single batch until its loss is near zero",
        evidence={"lasting": lasting},
    )


def _statistics(compared: Compared) -> _Batch | None:
    """Return the statistics of a batch, or None if it cannot be compared."""
    labels, predictions = compared.labels, compared.predictions
    if not predictions.size or not np.isfinite(predictions).all():
        return None
    numbers = compared.class_numbers
    if numbers is not None:
        predicted, truth = (
            np.bincount(one.ravel(), minlength=compared.classes)
            for one in (predictions.argmax(-1), numbers)
        )
        return _Batch(numbers.size, truth, predicted, 0.0)
    if np.size(labels) != predictions.size:
        return None
    differ = np.asarray(labels, np.float64).reshape(len(labels), -1).std(0)
    said_differ = predictions.reshape(len(labels), -1).std(0)
    spread = float(said_differ.mean() / differ.mean()) if differ.any() else 0.0
    none = np.zeros(0, np.int64)
    return _Batch(len(labels), none, none, spread, bool(differ.any()))
