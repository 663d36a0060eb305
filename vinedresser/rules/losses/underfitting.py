"""Rule: the training performs worse than simple baseline models on the same rows."""

from __future__ import annotations

from dataclasses import replace

from vinedresser.rules.advice import Advice
from vinedresser.rules.base import OnceRule
from vinedresser.rules.losses.loss_diagnosis import LossDiagnosis
from vinedresser.rules.need import Need, optional_statistics
from vinedresser.rules.patience import Patience
from vinedresser.rules.signals.outcomes.lagging import Lagging
from vinedresser.rules.signals.outcomes.learning_outcome import Guessed
from vinedresser.rules.signals.outcomes.outcome import Outcome
from vinedresser.rules.signals.outcomes.verdict import Verdict
from vinedresser.rules.signals.parameters.learning_rate import LearningRate
from vinedresser.store.finding import Finding, Severity
from vinedresser.store.reading.step import Step
from vinedresser.store.records import RunRecord

_EVERY = 5
# The verdict requires two standard errors.
_CONFIDENCE = 0.95

# That of a fault that is named because no other was found.
_EXCLUDED = 0.6

# That of a training of rows of which nobody knows whether there is something to learn.
_UNKNOWN_ROWS = 0.6

# Gain below which simple models find nothing in the rows.
_NOTHING = 0.05
# Gain on training rows that a loss with a wrong sign rules out.
_RIGHT = 0.5
# Correlation of predictions and targets below which they are opposite.
_NEGATIVE = -0.5
# The same if a metric becomes worse, which may have one of two causes.
_REVERSED = 0.8

_OPPOSITE = Advice(
    cause="the model learns the opposite: the loss, or a term of it, has the wrong sign, or the "
    "classes are swapped between training and metric",
    remedy="compute the metric on training rows: if it is good there, compare how the labels of "
    "both sets are made; if it is as bad, check the sign of each term of the loss",
)
_SWAPPED = Advice(
    cause="the labels of the metric are not those of the training, such as classes in another "
    "order or counted from another number: the predictions are right by the labels of the training",
    remedy="compare how the labels of both sets are made, for the same rows",
)
_UNRELATED = Advice(
    cause="the labels do not belong to the inputs, or the inputs tell nothing about them: "
    "gradients arrive and weights move, but neither the model nor simple models find anything to "
    "learn in these rows",
    remedy="look at some rows with their labels; check what sorts, shuffles or joins them: inputs "
    "and labels must go through it together; then train on a single batch until its loss is near "
    "zero",
)
_BEHIND = Advice(
    cause="ridge regression or five nearest neighbours predict these rows better: the steps are "
    "too small or too few, or too soon so (a schedule that falls per batch), or the model lacks a "
    "part that it needs or that does not train",
    remedy="train on a single batch until its loss is near zero: if that fails, check the "
    "activations between the layers and which weights the optimizer has; otherwise train longer, "
    "or with a larger learning rate",
)
_BEHIND_CONSTANT = Advice(
    cause="a constant predicts these targets better: the predictions have another scale or range "
    "(units, initial weights, an activation after the last layer), the wrong sign, or nothing "
    "trains them: their term is not in the loss, or no gradient comes through it",
    remedy="compare minimum, mean and maximum of predictions and targets, and check that each term "
    "of the loss has a gradient",
)
_NOT_CARRIED = Advice(
    cause="what is learned on training rows does not hold for others: their labels do not belong "
    "to their inputs, or the evaluation rows are prepared in another way",
    remedy="look at some rows of both sets with their labels; check what shuffles, sorts or joins "
    "inputs and labels: both must go through it together",
)
_NEGATED = Advice(
    cause="the predictions are the opposite of the targets: they, the targets or a term of the "
    "loss have the wrong sign, such as a force that is the gradient of an energy, not its negative",
    remedy="compare predictions and targets of some rows; check the sign of each term of the loss "
    "and of what is derived from the output",
)
_FROZEN = Advice(
    cause="the evaluated model is not the one that is trained (a copy, an average that nothing "
    "updates, a checkpoint loaded before each evaluation), the numbers are those of a cache, or "
    "all rows are predicted alike in evaluations",
    remedy="evaluate the model whose parameters the optimizer has; print one of its weights, and "
    "some predictions, in the training and in the evaluation: the weights must be equal, and "
    "change",
)
_UNMOVED = Advice(
    cause="the loss alone does not tell whether the training achieves what its metrics measure",
    remedy="train longer, or state what it has to reach, such as --expect 'accuracy > 0.5'",
)
_WORSE = Advice(
    cause="the policy becomes worse than it was untrained: the loss, or the advantage in it, has "
    "the wrong sign, or steps are too large",
    remedy="check the sign: the loss of a policy gradient is -(log-probability * advantage); then "
    "try a tenth of the learning rate",
)


class Underfitting(OnceRule):
    """The predictions are much worse than they should be and will not improve enough.

    The gain, the share of the chance-level error that the model removes, is significantly below
    half of what ridge regression or five nearest neighbours reach on rows from the training, and
    will stay so until the end of the run at the current rate (`Outcome`). Without labels, or if the
    baseline models reach nothing, losses and metrics decide; at the end, so do reported metrics
    that are no better than guessing. At the end of a run whose outcome is not poor, classes or
    numbers that are predicted no better than by guessing, or with less than four fifths of the gain
    of the baseline models, are a warning, and so are targets of which a constant is better. A
    metric such as AUC that is that of guessing in evaluations, but not on training rows, is a
    warning at the end, and so is a number of the evaluations that never changes while the loss
    falls. If no metric shows progress, the rule says that it cannot tell. A bounded metric that is
    far worse than guessing is reported at once: the loss or the labels are reversed. This rule is
    the fallback for all rules that recognise a fault by its symptoms, so it waits long enough for
    those to fire; at the end of the run it does not wait. If the simple models find nothing either,
    although gradients arrive and weights move, the fault is `corrupt_labels` and the severity a
    warning: the rows may be mere noise. If numbers are the opposite of what is predicted (a
    correlation below -0.5), the fault is `loss_output_mismatch`.

    Args:
        patience: number of consecutive checks, five steps apart. Rules that check weights and
            gradients every 20 steps have then checked three times.
    """

    fault = "underfitting"
    stage = "outcome"
    consequences = ("not_learning",)
    cause_unknown = True
    former_names = ("constant_predictions",)
    position = 410
    silent_after_stop = True

    def __init__(self, patience: int = 13) -> None:
        self.patience = patience
        self.needs = (
            Need("losses"),
            # Only for the cause: do gradients arrive at the weights, and do the weights move?
            *optional_statistics(20, gradients=("l2",), weights=("l2",)),
        )
        self.outcome = Outcome()
        self.lagging = Lagging()
        self._diagnosis = LossDiagnosis()
        self._patience = Patience(patience)
        self._last: Step | None = None

    def begin(self, info: RunRecord) -> None:
        """Read the learning rate and the setup of the training."""
        self._diagnosis.rate = LearningRate.among(info.parameters)
        self._diagnosis.begin(info)

    def watch(self, step: Step) -> Finding | None:
        """See `OnceRule.watch`."""
        self._diagnosis.add(step)
        self._last = step
        if step.step % _EVERY:
            return None
        if guessed := self.outcome.opposite():
            advice = _SWAPPED if self._right_in_training() else _OPPOSITE
            return self._reversed(step, guessed, advice, self.without_stop)
        verdict = self.outcome.verdict()
        poor = verdict.kind == "poor" and not verdict.plateau
        return self._finding(step, verdict) if self._patience.add(step.step, seen=poor) else None

    def at_end(self) -> Finding | None:
        """Return the finding of a training with a poor outcome."""
        verdict = self.outcome.final()
        if self._last is None:
            return None
        if verdict.kind != "poor":
            return self._at_end(self._last, verdict)
        worse = None if self._patience.count else self.outcome.progress.worse_return()
        if worse is not None:
            return self._reversed(self._last, worse, _WORSE, self.severity)
        return self._finding(self._last, verdict)

    def _at_end(self, step: Step, verdict: Verdict) -> Finding | None:
        """Return the finding of a training that ends at chance or behind, though it is not poor."""
        if guessed := self.outcome.progress.guessed_in_evaluation():
            found = self._reversed(step, guessed, _NOT_CARRIED, self.without_stop)
            return replace(found, fault="corrupt_labels", confidence=_UNKNOWN_ROWS)
        if words := self.outcome.at_chance():
            return self._warning(step, words)
        if words := self.lagging.behind_constant():
            return self._warning(step, words, _BEHIND_CONSTANT)
        words = self.lagging.behind_simple_models() if verdict.kind == "open" else ""
        if words:
            return self._warning(step, words, _BEHIND)
        if still := self.outcome.frozen():
            return replace(
                self._reversed(step, still, _FROZEN, self.without_stop), fault="underfitting"
            )
        words = self.outcome.unmoved()
        return self._untold(step, words) if words else None

    def _untold(self, step: Step, words: str) -> Finding:
        """Return that metrics leave open whether the training has learned: no fault is found."""
        return self.found(
            step,
            since=step.step,
            tensor="",
            statistic="",
            value=0.0,
            threshold=0.0,
            confidence=1.0,
            seen=words,
            cause=_UNMOVED.cause,
            remedy=_UNMOVED.remedy,
            evidence={},
            fault="",
            severity=self.without_stop,
        )

    def _warning(self, step: Step, words: str, advice: Advice | None = None) -> Finding:
        """Return the finding of a training that ends at chance or behind, as far as is known.

        Args:
            words: what was seen.
            advice: cause and remedy if nothing else explains it; None: those of a loss that stands.
        """
        finding = self._finding(step, Verdict("open", words))
        if advice is not None and finding.fault == "underfitting":
            finding = replace(finding, cause=advice.cause, remedy=advice.remedy)
        return replace(finding, confidence=_UNKNOWN_ROWS, severity=self.without_stop)

    def _right_in_training(self) -> bool:
        """Return whether the predictions agree with the labels of training rows, in each task."""
        gains = self.outcome.fit.gains("train")
        known = bool(gains) and len(gains) == len(self.outcome.fit.of("train"))
        return known and min(gain.least for gain in gains) > _RIGHT

    def _reversed(self, step: Step, metric: Guessed, advice: Advice, severity: Severity) -> Finding:
        """Return the finding about a metric that the training makes worse."""
        return self.found(
            step,
            since=metric.since,
            tensor=metric.name,
            statistic="value",
            value=metric.value,
            threshold=metric.guessing,
            confidence=_REVERSED,
            seen=metric.words,
            cause=advice.cause,
            remedy=advice.remedy,
            evidence={"values": metric.values},
            fault="corrupt_labels" if advice is _SWAPPED else "loss_output_mismatch",
            severity=severity,
        )

    def _finding(self, step: Step, verdict: Verdict) -> Finding:
        fault, advice = self._diagnosis.standing()
        if fault == "not_learning" and self._unrelated():
            fault, advice = "corrupt_labels", _UNRELATED
        elif fault == "not_learning" and self._negated():
            fault, advice = "loss_output_mismatch", _NEGATED
        known = fault != "not_learning"
        # Nobody can predict some rows, such as random ones or daily returns: no reason to stop.
        hopeless = advice is _UNRELATED
        low = fault == "learning_rate_too_low"
        rate = self._diagnosis.rate
        tensor, statistic, value, threshold = self._shortfall()
        return self.found(
            step,
            since=self._patience.since if self._patience.count else step.step,
            tensor=tensor,
            statistic=statistic,
            value=value,
            threshold=threshold,
            confidence=_EXCLUDED if advice is _UNRELATED else _CONFIDENCE,
            seen=verdict.reason,
            cause=advice.cause,
            remedy=advice.remedy,
            evidence={"looks": self._patience.count},
            fault=fault if known else "underfitting",
            severity=self.without_stop if hopeless else None,
            correction=rate.corrected(10.0) if low and rate else {},
        )

    def _unrelated(self) -> bool:
        """Return whether weights move, but simple models, too, find nothing in the rows."""
        if not (self._diagnosis.trains and self._diagnosis.moved > 0):
            return False
        losses = self.outcome.fit.of("train")
        gains = [self.outcome.baseline.gain(loss) for loss in losses]
        return bool(gains) and all(gain is not None and gain < _NOTHING for gain in gains)

    def _negated(self) -> bool:
        """Return whether numbers are predicted with the wrong sign."""
        fit = self.outcome.fit
        series = (*fit.of("train").values(), *fit.parts("train").values())
        return any((one.correlation() or 0.0) < _NEGATIVE for one in series)

    def _shortfall(self) -> tuple[str, str, float, float]:
        """Return a tensor, one of its statistics, the value of that, and the expected value."""
        for loss, series in self.outcome.fit.of("train").items():
            gain, wanted = series.gain(), self.outcome.simple(loss)
            if gain is not None and wanted is not None:
                name = self.outcome.fit.batches.tensor("predictions", loss)
                return name, "gain", gain.value, wanted
        if self._patience.count == 0 and (guessed := self.outcome.guessed()):
            return guessed.name, "value", guessed.value, guessed.guessing
        name, progress = next(iter(self.outcome.progress.losses.items()))
        now = progress.latest()
        return name, "loss", now.level if now else progress.first, progress.start()[0]
