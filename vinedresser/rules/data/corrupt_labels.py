"""Rule: the labels are unrelated to the inputs, or a large part of them is wrong."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from vinedresser.rules.base import OnceRule
from vinedresser.rules.bounds import require_at_least, require_between
from vinedresser.rules.data.placeholders import Placeholders
from vinedresser.rules.data.repeated_rows import OF_ROWS, other_labels
from vinedresser.rules.need import Need
from vinedresser.rules.signals.losses.compared import Batches
from vinedresser.rules.signals.outcomes.fit import FitSeries, Gain
from vinedresser.rules.signals.outcomes.gain_windows import windows_of
from vinedresser.rules.signals.outcomes.guessing import Guessing
from vinedresser.rules.signals.outcomes.held_out import HeldOut
from vinedresser.rules.signals.outcomes.learning_outcome import several_trained
from vinedresser.rules.signals.outcomes.outcome import Outcome
from vinedresser.rules.signals.outcomes.row_labels import RowLabels
from vinedresser.rules.symptom import Symptom
from vinedresser.store.finding import HOPELESS, Finding
from vinedresser.store.reading.step import Step
from vinedresser.store.records import RunRecord

_SURE = 2.0
# Steps, and the share of a run of known length, before the rule may fire.
_PATIENCE, _SHARE = 150, 0.3
# Minimum number of distinct rows for baseline models, and the gain below which they have found
# nothing.
_ROWS = 256
_NOTHING = 0.1
# Minimum shares of the chance-level loss, and of the chance-level error, that an evaluation must
# remove to show learning; low enough for any model that has learned.
_BETTER = 0.03
_BETTER_ERROR = 0.2
# Factor for ``gain`` at the end of the run.
_OVER = 0.3
# The same for tokens, whose frequencies are learned first, and how far an evaluation of another
# text may be above the chance level of the training.
_OF_TEXT, _OTHER_TEXT = 3.0, 0.1
# Relative distance within which a loss is at chance level.
_AT_CHANCE = 0.1
# Memorisation: margins by which the score is higher on training rows than in evaluations, and by
# which neighbours predict evaluated rows better than each other.
_BY_HEART = 0.1
_WORSE = 0.15
_VERY_SURE = 3.0
# Gain of the baseline models in a task that generalises, number of values of a metric, and share of
# the run after which batch norm has its statistics.
_GENERAL, _VALUES, _HALF = 0.3, 3, 0.5

# Rows of each class from which simple models find what there is.
_PER_CLASS = 10

# Gain of the baseline models in a task so clear that memorising does not cost half of it, and
# shares of it that are good on training rows, and far too low on evaluated rows.
_CLEAR, _GOOD, _FAR = 0.6, 0.8, 0.5
# Gain of a model that predicts placeholders, as if they were meant.
_PREDICTED = 0.5

_REMEDY = (
    "inspect some rows and their labels; check the code that joins them (only one of the two "
    "shuffled or sorted, a wrong key, an offset by one), and split and shuffle them together"
)
# The test that tells wrong labels from a model or a loss that cannot learn.
_ONE_BATCH = (
    "train on a single batch: if its loss does not come near zero, check the model and the loss; "
    "if it does, the labels or the rows are wrong"
)


@dataclass
class _Evaluations:
    """Evaluations of one loss.

    Attributes:
        count: number of evaluations.
        rows: number of captured rows in the last evaluation.
        best: largest share of the chance-level loss that an evaluation removed.
    """

    count: int = 0
    rows: int = 1
    best: float = -float("inf")
    best_loss: float = float("inf")


class CorruptLabels(OnceRule):
    """The labels do not belong to the inputs, or many of them are wrong.

    The gain is the share of the chance-level error that the model removes; the chance level is the
    loss of a model that knows only how often each label occurs. Fires after 150 steps and 30 % of
    the run in one of seven cases, of which only the first stops the run:

    - *Other labels each time*: rows that come again, as in the next epoch, have labels that have
      nothing to do with their first ones: the row explains certainly less than a quarter of their
      variance (`RowLabels`; 128 rows), and the predictions are no better than guessing.
    - *Memorised*: on training rows, more than ``gain`` of the chance-level error or loss is removed
      (0.3 of ``gain`` at the end of the run), by two standard errors. In ``evaluations``
      evaluations, the loss never beat the chance level by 3 % (plus two standard errors from the
      labels of an evaluation) and the predictions have no gain of 0.2. Baseline models (ridge
      regression, five nearest neighbours; see `Outcome`) found less than 0.1 in 256 distinct
      training rows; if they do not apply (tokens), the rule waits for the end of the run, and if
      the labels are tokens, too, the training has to remove three times ``gain``, and all
      evaluations have to be above the chance level by 10 %. Not of several models with an optimizer
      each: one may be trained and another evaluated.
    - *Nothing to learn*: the outcome is poor, the loss is at chance level (within 10 %), and
      baseline models also found less than 0.1 in 256 rows. The inputs may be the cause, too.
    - *Other labels in evaluation*: all reported metrics of known meaning (`MetricScale`) are those
      of guessing in at least three values, while the predictions on training rows are good, and
      baseline models find more than 0.3 there. Waits for half of the run, or for its end if its
      length is unknown.
    - *Wrong in training*: five nearest neighbours among the training rows predict the classes of
      the evaluated rows better than those of the training rows, by 0.15 and three standard errors,
      while the model predicts training rows better, by 0.1 and two standard errors.
    - *Far behind in evaluation*: at the end of the run, the gain on evaluated rows, in at least
      three samples, was never more than half of that of the baseline models (0.6 or more), by two
      standard errors, while that on training rows is above four fifths of it. The inputs are then
      the likely cause.
    - *Placeholders*: 1 % of the numbers or more are one number other than 0, as far from all others
      as twice their range (`Placeholders`), the loss compares them like all others, and the model
      does not predict them (a gain below 0.5).

    Sources: Zhang et al., "Understanding deep learning requires rethinking generalization" (2017):
    networks fit random labels, and only evaluation reveals it; Karpathy 2019 (baseline).

    Args:
        gain: minimum gain on memorised training rows.
        evaluations: number of evaluations without any gain; at the end of the run, three are enough
            if the baseline models find nothing either.
    """

    fault = "corrupt_labels"
    stage = "data"
    # Without anything to learn, weight decay pulls the weights to zero, and steps in no direction
    # are too long and move units to where they pass nothing. Targets out of reach push the outputs
    # to their ends.
    consequences = (
        "outcome",
        "no_signal",
        "learning_rate_too_high",
        "dying_relu",
        "over_regularisation",
        "overfitting",
        "saturated_activation",
        "vanishing_gradient",
    )
    position = 60
    left_out_of = ("autoencoder", "adversarial")
    modes = ("train", "eval")

    @classmethod
    def can_explain(cls, cause: Finding, finding: Finding) -> bool:  # noqa: ARG003 (of all)
        """See `Rule.can_explain`: no labels kill units before the first update, or all weights."""
        hopeless = finding.fault == "over_regularisation" and finding.evidence.get(HOPELESS)
        return not hopeless and (finding.fault != "dying_relu" or finding.since > 0)

    def __init__(self, gain: float = 0.1, evaluations: int = 5) -> None:
        require_between(0, 1, gain=gain)
        require_at_least(1, evaluations=evaluations)
        self.gain = gain
        self.evaluations = evaluations
        self.batches = Batches()
        self.needs = (
            Need("losses", modes=("eval",), required=False),
            *self.batches.required("labels"),
        )
        self.outcome = Outcome()
        self.guessing = Guessing()
        self.held_out = HeldOut()
        self.row_labels = RowLabels()
        self._evaluated: dict[str, _Evaluations] = {}
        self._last: Step | None = None
        self._several = False
        self._text = False
        self._placeholders: dict[str, Placeholders] = {}

    def on_record(self, info: RunRecord) -> None:
        """Read whether several models are trained."""
        self._several = several_trained(info)

    def watch(self, step: Step) -> Finding | None:
        """See `OnceRule.watch`."""
        if step.mode == "eval":
            self._evaluate(step)
            return None
        if not self.batches.compared:
            return None
        self._last = step
        self._text |= self.batches.of_text
        if self._text:
            # Baseline models find nothing in numbers of tokens: only the end tells.
            return None
        for one in self.batches.compared:
            if one.labels.dtype.kind == "f":
                targets = self._placeholders.setdefault(one.loss, Placeholders())
                targets.add(np.asarray(one.labels, np.float64))
        if step.step < max(_PATIENCE, _SHARE * (self.expected_steps or 0)):
            return None
        return self._finding(step, over=False)

    def at_end(self) -> Finding | None:
        """See `OnceRule.at_end`."""
        if self._last is None or self._last.step < _PATIENCE:
            return None
        return self._finding(self._last, over=True)

    def _evaluate(self, step: Step) -> None:
        for name, value in step.scalars_of("losses").items():
            loss = self._trained(name.removeprefix("losses/"))
            guessed = self.guessing.loss(loss)
            # Nothing is learned before the first training labels either.
            if guessed is None or not guessed > 0:
                continue
            seen = self._evaluated.setdefault(loss, _Evaluations())
            seen.count += 1
            seen.rows = max([1, *(len(one.labels) for one in self.batches.compared)])
            if 1 - value / guessed > seen.best:
                seen.best, seen.best_loss = 1 - value / guessed, value

    def _trained(self, loss: str) -> str:
        """Return the training loss that matches an evaluation loss: by name, or the only one."""
        known = list(self.outcome.fit.of("train"))
        return known[0] if len(known) == 1 and loss not in known else loss

    def _finding(self, step: Step, *, over: bool) -> Finding | None:
        tasks = self.outcome.fit.of("train")
        # One of several tasks may be hopeless on purpose.
        found = [
            self._apart(loss, series)
            or self._placeholder(loss, series)
            or self._of(loss, series, over=over)
            for loss, series in tasks.items()
        ]
        seen = found[0] if found else None
        if seen is None or any(one is None for one in found):
            return None
        loss = next(iter(tasks))
        evaluated = self._evaluated.get(loss, _Evaluations())
        baseline = self.outcome.baseline.gain(loss)
        arguments = seen.reported("", baseline=baseline, evaluations=evaluated.count)
        certain = all(one is not None and one.statistic == OF_ROWS for one in found)
        return self.found(
            step, since=0, severity=None if certain else self.without_stop, **arguments
        )

    def _of(self, loss: str, series: FitSeries, *, over: bool) -> Symptom | None:
        gain = series.gain()
        if gain is None:
            return None
        baseline = self.outcome.baseline.gain(loss)
        if baseline is not None and baseline >= _NOTHING:
            others = self._others_in_evaluation(gain, baseline, over=over)
            found = others or self._wrong_in_training(loss, gain)
            return found or (self._far_behind(loss, gain, baseline) if over else None)
        rows = self.outcome.baseline.fitted_rows(loss)
        asked = baseline is not None and rows is not None and len(rows[0]) >= _ROWS
        share = _OF_TEXT if self._text else _OVER if over else 1.0
        gone, wanted = max(gain.least, self._better_loss(loss)), self.gain * share
        if gone > wanted:
            fewest = min(self.evaluations, _VALUES) if over and asked else self.evaluations
            found = self._by_heart(loss, gone, wanted, baseline, fewest)
            return found if over or asked else None
        return self._nothing(loss, over=over) if asked and gain.least <= 0 else None

    def _apart(self, loss: str, series: FitSeries) -> Symptom | None:
        """Return the symptom of rows that have other labels each time they come."""
        seen, gain = self.row_labels.agreement(loss), series.gain()
        if seen is None or gain is None or gain.least > 0:
            return None
        aimless = self.outcome.progress.aimless.includes(f"losses/{loss}")
        tensor = self.batches.tensor("labels", loss)
        return None if aimless else other_labels(seen, tensor, _REMEDY)

    def _placeholder(self, loss: str, series: FitSeries) -> Symptom | None:
        """Return the symptom of a number that stands for missing targets and is learned."""
        targets, gain = self._placeholders.get(loss), series.gain()
        if targets is None or gain is None or series.task != "values" or gain.most > _PREDICTED:
            return None
        return targets.symptom(self.batches.tensor("labels", loss))

    def _better_loss(self, loss: str) -> float:
        """Return the share of the chance-level loss that the training has removed.

        Less two standard errors; 0 if unknown.
        """
        guessed = self.guessing.loss(loss)
        progress = self.outcome.progress.losses.get(f"losses/{loss}")
        now = progress.latest() if progress else None
        return 1 - (now.level + _SURE * now.error) / guessed if now and guessed else 0.0

    def _by_heart(
        self, loss: str, gone: float, wanted: float, baseline: float | None, fewest: int
    ) -> Symptom | None:
        evaluated, guessed = self._evaluated.get(loss), self.guessing.loss(loss)
        if self._several or evaluated is None or not guessed:
            return None
        if evaluated.count < fewest:
            return None
        doubt = self.guessing.deviation(loss) / math.sqrt(evaluated.rows) / guessed
        series = self.outcome.fit.of("eval").get(loss)
        shown = series.gain() if series else None
        better = -_OTHER_TEXT if self._text else _BETTER
        found = evaluated.best > better + _SURE * doubt
        if found or (shown is not None and shown.value > _BETTER_ERROR):
            return None
        return Symptom(
            self.batches.tensor("labels", loss),
            "gain",
            gone,
            wanted,
            0.85,
            f"the training removed {gone:.0%} of the chance-level error on training rows, but in "
            f"{evaluated.count} evaluations the loss was never below {evaluated.best_loss:.4g} "
            f"(chance level: {guessed:.4g})"
            f"{'' if baseline is None else '; simple models find nothing either'}",
            f"the labels do not belong to the rows{self._or_few_rows(loss)}: the model only "
            "memorises them",
            _REMEDY,
        )

    def _or_few_rows(self, loss: str) -> str:
        """Return in words that there may be too few rows; "" if simple models had enough."""
        rows, series = self.outcome.baseline.fitted_rows(loss), self.outcome.fit.of("train")[loss]
        if rows is None:
            # Such as large images: any labels of few rows with many numbers can be memorised.
            return ", or there are too few rows to learn more than their labels"
        classes = int((series.counts > 0).sum()) if series.task == "classes" else 0
        if len(rows[0]) >= _PER_CLASS * classes:
            return ""
        return f", or {classes} classes need more rows"

    def _nothing(self, loss: str, *, over: bool) -> Symptom | None:
        verdict = self.outcome.final() if over else self.outcome.verdict()
        guessed = self.guessing.loss(loss)
        progress = self.outcome.progress.losses.get(f"losses/{loss}")
        now = progress.latest() if progress else None
        if verdict.kind != "poor" or guessed is None or now is None:
            return None
        if abs(now.level - guessed) > _AT_CHANCE * guessed:
            return None
        return Symptom(
            self.batches.tensor("labels", loss),
            "loss",
            now.level,
            guessed,
            0.6,
            f"no relation between inputs and labels was found: the loss stays at {now.level:.4g} "
            f"(chance level: {guessed:.4g}), and simple models cannot predict these labels from "
            "these inputs either",
            "there seems to be nothing to learn: the labels are random, do not belong to the rows, "
            "or rows were mixed up; or the loss or the model prevents learning what simple models "
            "do not find",
            f"{_ONE_BATCH}: {_REMEDY}",
        )

    def _others_in_evaluation(self, gain: Gain, baseline: float, *, over: bool) -> Symptom | None:
        assert self._last is not None, "a train step was seen"
        late = over or self._last.step >= _HALF * (self.expected_steps or math.inf)
        good = gain.least > baseline * (1 - _GENERAL)
        guessed = self.outcome.guessed() if late and good and baseline > _GENERAL else None
        if guessed is None or guessed.values < _VALUES:
            return None
        return Symptom(
            guessed.name,
            "value",
            guessed.value,
            guessed.guessing,
            0.8,
            f"the predictions on training rows have a score of {gain.score:.3g}, but the reported "
            f"{guessed.words} ({guessed.values} values)",
            "what the metric is computed from does not belong together: the evaluation rows have "
            "other labels, or classes in another order, or inputs prepared in another way, than "
            "the training rows",
            "evaluate on the training rows: a metric that stays as low is computed from the wrong "
            "predictions or labels; otherwise compare how both sets are loaded",
        )

    def _far_behind(self, loss: str, gain: Gain, baseline: float) -> Symptom | None:
        """Return the symptom of evaluations that are far worse than simple models are."""
        series = self.outcome.fit.of("eval").get(loss)
        shown = series.gain() if series else None
        if series is None or shown is None or series.samples() < _VALUES or self._several:
            return None
        best = max([shown, *windows_of(series)], key=lambda one: one.most)
        good = gain.least > _GOOD * baseline
        if baseline < _CLEAR or not good or best.most > _FAR * baseline:
            return None
        return Symptom(
            self.batches.tensor("labels", loss),
            "gain",
            shown.value,
            baseline,
            0.7,
            f"the gain over guessing is {gain.value:.2f} on training rows, but {shown.value:.2f} "
            f"on evaluated rows, and never was above {best.value:.2f}; simple models reach "
            f"{baseline:.2f} on rows that they were not fitted to",
            "evaluated rows differ from training rows: they are scaled, shifted, sorted or "
            "labelled in another way, or a layer treats them in another way, such as batch norm "
            "whose momentum is far too small",
            "evaluate on the training rows: if the score stays low, a layer or the metric is the "
            "cause; otherwise compare how both sets are prepared",
            fault="corrupt_inputs",
        )

    def _wrong_in_training(self, loss: str, gain: Gain) -> Symptom | None:
        series = self.outcome.fit.of("eval").get(loss)
        shown = series.gain() if series else None
        votes = self.held_out.votes(loss) if shown else None
        if votes is None or shown is None:
            return None
        # Each evaluation captures the same rows.
        rows = self._evaluated.get(loss, _Evaluations()).rows
        error = math.sqrt(max(shown.score * (1 - shown.score), 1e-2) / rows)
        if gain.score - shown.score < _BY_HEART + _SURE * error:
            return None
        if votes.held_out - votes.train < max(_WORSE, _VERY_SURE * votes.error):
            return None
        return Symptom(
            self.batches.tensor("labels", loss),
            "agreement",
            votes.train,
            votes.held_out,
            0.8,
            "five nearest neighbours among the training rows predict the right class for "
            f"{votes.held_out:.0%} of the evaluated rows but only {votes.train:.0%} of the "
            f"training rows; the model is right for {shown.score:.0%} and {gain.score:.0%}",
            "many labels of the training rows are wrong, and the model memorises them",
            _REMEDY,
        )
