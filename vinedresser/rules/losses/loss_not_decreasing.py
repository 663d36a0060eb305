"""Rule: the training loss does not decrease, or rises and stays high."""

from __future__ import annotations

import math
from statistics import NormalDist

from vinedresser.rules.advice import Advice
from vinedresser.rules.base import OnceRule
from vinedresser.rules.bounds import require_above, require_at_least, require_between
from vinedresser.rules.losses.loss_diagnosis import LossDiagnosis
from vinedresser.rules.need import optional_statistics
from vinedresser.rules.signals.losses.compared import Batches
from vinedresser.rules.signals.losses.predicted_fall import PredictedFall
from vinedresser.rules.signals.outcomes.no_progress import LossTrajectory, NoProgress
from vinedresser.rules.signals.outcomes.outcome import PLATEAU
from vinedresser.rules.signals.outcomes.score_spread import ScoreSpread
from vinedresser.rules.signals.parameters.learning_rate import LearningRateSignal
from vinedresser.store.finding import Finding
from vinedresser.store.reading.step import Step
from vinedresser.store.records import RunRecord

# Number of examples from which a model can be expected to learn anything: with a batch of one, a
# few hundred steps are few.
_EXAMPLES = 4096
# Gain, less two standard errors, of predictions that are clearly better than guessing.
_RIGHT = 0.2

# Difference of scores that changes the share of a class by a tenth at most.
_FLAT = 0.1


class LossNotDecreasing(OnceRule):
    """The training loss does not decrease, rises again, or stays far above its start.

    The rule divides the loss into blocks of patience / 20 steps; the spread of neighbouring block
    means is the noise. Fires when either

    - the loss is flat and less than ``drop`` below its start (both by two standard errors), over
      three quarters of the patience and at each block of the last quarter; if the noise is high,
      the range is doubled up to sixteen times until the test can decide; or
    - every loss of a quarter of the patience is above its first value by ``rise``, and they do not
      decrease.

    If there are several losses, all must satisfy this; adversarial losses (several optimizers, with
    one model or loss each) count only if all stay far above their start. A plateau after learning
    is no finding, nor is a run with an improving metric. The condition must hold for 20 steps, so
    that rules that know the cause can fire first. A flat loss with arriving gradients and moving
    weights may be on a plateau before learning (Barak et al., "Hidden progress in deep learning",
    NeurIPS 2022), which cannot be distinguished from a hopeless task: the rule waits for half of
    the run, or for its end if its length is unknown. It also waits until the model has seen 4,096
    examples (labels, or rows of inputs), if their number is captured. It is no finding in a
    training that began with loaded weights, which may be as good as they can become.

    Args:
        patience: steps without progress; must be longer than a warm-up.
        drop: share of the initial loss by which it must decrease to count as learning.
        rise: share of the first loss by which it must not stay above it; 1 is twice the loss.
    """

    fault = "not_learning"
    stage = "outcome"
    cause_unknown = True
    position = 400
    predecessors = ("loss_not_decreasing",)

    def __init__(self, patience: int = 200, drop: float = 0.1, rise: float = 1.0) -> None:
        require_at_least(20, patience=patience)
        require_between(0, 1, drop=drop)
        require_above(0, rise=rise)
        self.patience = patience
        self.drop = drop
        self.rise = rise
        # Only for the cause: do gradients arrive at the weights, and do the weights move?
        self.needs = optional_statistics(20, gradients=("l2",), weights=("l2",))
        self.progress = NoProgress(patience, drop, rise)
        self.rate = LearningRateSignal()
        self.predicted = PredictedFall()
        self.batches = Batches()
        self.scores = ScoreSpread()
        # Number of examples in a step; 0 if unknown.
        self._examples = 0
        self._diagnosis = LossDiagnosis()
        # Whether the weights were loaded, so that they may be trained already.
        self._loaded = False

    def begin(self, info: RunRecord) -> None:
        """Read the setup of the training."""
        self._diagnosis.begin(info)
        self._loaded = info.loaded

    def watch(self, step: Step) -> Finding | None:
        """See `OnceRule.watch`."""
        self._diagnosis.add(step)
        self._examples = max(self._examples, _examples(self.batches))
        trajectory = self.progress.trajectory()
        if trajectory is None or self._may_be_trained(trajectory):
            return None
        if self._may_be_a_plateau(step, trajectory):
            return None
        return self._finding(step, trajectory)

    def at_end(self) -> Finding | None:
        """Return the finding at the end of the run."""
        trajectory = self.progress.trajectory(ended=True)
        if trajectory is None or self.progress.last is None or self._may_be_trained(trajectory):
            return None
        return self._finding(self.progress.last, trajectory)

    def _may_be_trained(self, trajectory: LossTrajectory) -> bool:
        """Return whether a loss may stand because the loaded weights were trained before."""
        return trajectory.kind == "standing" and self._loaded and self._diagnosis.reached

    def _may_be_a_plateau(self, step: Step, trajectory: LossTrajectory) -> bool:
        if trajectory.kind != "standing":
            return False
        if 0 < self._examples * (step.step + 1) < _EXAMPLES:
            return True
        leaves = self._diagnosis.may_leave_plateau
        return leaves and step.step < PLATEAU * (self.expected_steps or math.inf)

    def _finding(self, step: Step, trajectory: LossTrajectory) -> Finding:
        start, stretch, progress = trajectory.start, trajectory.stretch, trajectory.progress
        threshold = start + (self.rise if trajectory.blown else -self.drop) * abs(start)
        error = math.hypot(trajectory.start_error, stretch.error)
        margin = (stretch.level - threshold) / error if error else math.inf
        fault, advice, correction = self._diagnosis.explain(trajectory, self.rate, self.predicted)
        flat = _flat_scores(self.scores) if fault == "not_learning" else None
        if flat is not None:
            fault, advice = "loss_output_mismatch", flat
        return self.found(
            step,
            since=trajectory.since,
            tensor=trajectory.name,
            statistic="loss",
            value=stretch.level,
            threshold=threshold,
            confidence=NormalDist().cdf(margin),
            seen=f"{trajectory.name} {trajectory.seen}{self.progress.outcome.metrics_in_words()}",
            cause=advice.cause,
            remedy=advice.remedy,
            fault=fault,
            severity=None if trajectory.certain and flat is None else self.without_stop,
            correction=correction,
            evidence={
                "start": start,
                "level": stretch.level,
                "standard_error": error,
                "lowest": [progress.lowest_step, progress.lowest],
                "highest": [progress.peak_step, progress.peak],
                "rise": trajectory.rise,
                "weights_moved": self._diagnosis.moved,
            },
        )


def _examples(batches: Batches) -> int:
    """Return the number of examples of the last step; 0 if none were captured."""
    labels = [one.labels for one in batches.compared]
    if labels:
        return max(label.size if label.dtype.kind in "iu" else len(label) for label in labels)
    return max((len(one) for one in batches.inputs.values() if one.ndim), default=0)


def _flat_scores(spread: ScoreSpread) -> Advice | None:
    """Return the diagnosis of a cross-entropy that stands although the right scores are highest.

    Scores that an unsuitable learning rate or the data keep close to each other are not in the
    right order. These are, so something scales them: a temperature that is far too high, or a mean
    in place of a sum. None if this is not so for every loss between classes.
    """
    losses = spread.fit.of("train")
    if not losses or losses.keys() != spread.greatest.keys():
        return None
    gains = spread.fit.gains("train")
    right = len(gains) == len(losses) and all(gain.least > _RIGHT for gain in gains)
    widest = max(spread.greatest.values())
    if not right or widest > _FLAT:
        return None
    score = min(gain.score for gain in gains)
    return Advice(
        cause=f"the highest score is right in {score:.0%} of the rows, but the scores of a row "
        f"never differ by more than {widest:.2g}: softmax makes almost equal shares of them, as of "
        "a temperature that is far too high",
        remedy="divide the scores by a smaller temperature (0.05 to 0.2 for cosines), or multiply "
        "them by a scale that is learned",
    )
