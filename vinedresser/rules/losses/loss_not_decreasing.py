"""Rule: the training loss does not come down, or went up and stays there."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from vinedresser.errors import ConfigError
from vinedresser.rules.base import Rule
from vinedresser.rules.losses.loss_diagnosis import LossDiagnosis
from vinedresser.rules.need import Need
from vinedresser.rules.signals.confidence import confidence
from vinedresser.rules.signals.outcomes.no_progress import LossTrajectory, NoProgress
from vinedresser.rules.signals.outcomes.outcome import PLATEAU
from vinedresser.rules.signals.parameters.learning_rate import LearningRateSignal
from vinedresser.rules.trees.ensemble import Ensemble
from vinedresser.store.finding import Finding

if TYPE_CHECKING:
    from vinedresser.store.reading.step import Step
    from vinedresser.store.records import RunRecord

__all__ = ["LossNotDecreasing"]


class LossNotDecreasing(Rule):
    """The training loss has not come down, has come back up, or stays far above its start.

    Cuts the loss into blocks of patience / 20 steps; the spread of neighbouring block means is the
    noise. Fires when either

    - the loss stands still, and lies less than ``drop`` below its start (both surely, by two
      standard errors), over three quarters of the patience and at each block of the last quarter;
      with much noise the stretch is doubled, up to sixteen times, until it can tell; or
    - every loss of a quarter of the patience lies above its first value by ``rise``, and they do
      not fall.

    With several losses, all of them have to; those of adversaries (several optimizers, with a model
    or a loss each) only count where all of them stay far above. A plateau after learning is no
    finding, nor is a run in which a metric improves. It has to be so for 20 steps, in which rules
    that know the cause can see it. A loss that stands while gradients arrive and weights move may
    stand on a plateau before learning (Barak et al., "Hidden progress in deep learning", NeurIPS
    2022), which nothing tells from a task without hope: it is given half of a run whose length is
    known.

    Args:
        patience: steps without progress; a warm-up must be shorter.
        drop: share of the loss at the start by which it has to come down to count as learning.
        rise: share of the first loss by which it must not stay above it; 1 is twice the loss.
    """

    def __init__(self, patience: int = 200, drop: float = 0.1, rise: float = 1.0) -> None:
        if patience < 20:
            raise ConfigError(f"patience = {patience}: must be at least 20 steps")
        if not 0 < drop < 1:
            raise ConfigError(f"drop = {drop:g}: must lie between 0 and 1")
        if not rise > 0:
            raise ConfigError(f"rise = {rise:g}: must be greater than 0")
        self.patience = patience
        self.drop = drop
        self.rise = rise
        self.needs = (
            # For the cause alone: does anything arrive at the weights, and do they move?
            Need("gradients", every=20, reductions=("l2",), required=False),
            Need("weights", every=20, reductions=("l2",), required=False),
        )
        self.progress = NoProgress(patience, drop, rise)
        self.rate = LearningRateSignal()
        self._diagnosis = LossDiagnosis()
        self._fired = False

    def begin(self, info: RunRecord) -> None:
        """Take note of what each boosted tree counts."""
        self._diagnosis.shrinkage = Ensemble(info).shrinkage

    def update(self, step: Step) -> Finding | None:
        """See `Rule.update`."""
        if self._fired or step.rank != 0:
            return None
        self._diagnosis.add(step)
        trajectory = self.progress.trajectory()
        if trajectory is None or self._may_be_a_plateau(step, trajectory):
            return None
        return self._finding(step, trajectory)

    def finish(self) -> Finding | None:
        """Return what was so when the run was over."""
        trajectory = None if self._fired else self.progress.trajectory(ended=True)
        if trajectory is None or self.progress.last is None:
            return None
        return self._finding(self.progress.last, trajectory)

    def _may_be_a_plateau(self, step: Step, trajectory: LossTrajectory) -> bool:
        stands = trajectory.kind == "standing" and self._diagnosis.trains
        return stands and step.step < PLATEAU * (self.expected_steps or 0)

    def _finding(self, step: Step, trajectory: LossTrajectory) -> Finding:
        self._fired = True
        start, stretch, progress = trajectory.start, trajectory.stretch, trajectory.progress
        threshold = start + (self.rise if trajectory.blown else -self.drop) * abs(start)
        error = math.hypot(trajectory.start_error, stretch.error)
        margin = (stretch.level - threshold) / error if error else math.inf
        found = self._diagnosis.explain(trajectory, self.rate)
        return self.found(
            step,
            since=stretch.first,
            tensor=trajectory.name,
            statistic="loss",
            value=stretch.level,
            threshold=threshold,
            confidence=confidence(margin),
            seen=f"{trajectory.name} {trajectory.seen}{self.progress.outcome.metrics_in_words()}",
            cause=found.advice.cause,
            remedy=found.advice.remedy,
            fault=found.fault,
            correction=found.correction,
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
