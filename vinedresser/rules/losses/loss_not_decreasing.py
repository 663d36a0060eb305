"""Rule: the training loss does not come down, or went up and stays there."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from vinedresser.capture.finding import Finding
from vinedresser.errors import ConfigError
from vinedresser.rules.base import Rule
from vinedresser.rules.losses.loss_diagnosis import LossDiagnosis
from vinedresser.rules.need import Need
from vinedresser.rules.signals.confidence import confidence
from vinedresser.rules.signals.learning_outcome import LearningOutcome
from vinedresser.rules.signals.learning_rate import LearningRate
from vinedresser.rules.signals.loss_progress import LossProgress

if TYPE_CHECKING:
    from vinedresser.capture.store.step import Step
    from vinedresser.infra.run_directory import RunRecord

__all__ = ["LossNotDecreasing"]

# Rules that know the cause by weights and gradients look every 20 steps: it leaves them one look.
_HOLD = 20


class LossNotDecreasing(Rule):
    """The training loss has not come down, has come back up, or stays far above its start.

    Cuts the loss into blocks of patience / 20 steps; the spread of neighbouring block means is the
    noise. Fires when either

    - the loss stands still, and lies less than ``drop`` below its start (both surely, by two
      standard errors), over three quarters of the patience and at each block of the last quarter;
      with much noise the stretch is doubled, up to sixteen times, until it can tell; or
    - every loss of a quarter of the patience lies above its first value by ``rise``, and they do
      not fall.

    With several losses, all of them have to. A plateau after learning is no finding, nor is a run
    in which a metric improves. It has to be so for 20 steps, in which rules that know the cause
    can see it.

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
        self._outcome = LearningOutcome(patience, drop)
        self._diagnosis = LossDiagnosis()
        self._since: int | None = None
        self._last: Step | None = None
        self._fired = False

    def begin(self, info: RunRecord) -> None:
        """Take note of the learning rate."""
        self._diagnosis.rate = LearningRate.among(info.parameters)

    def update(self, step: Step) -> Finding | None:
        """See `Rule.update`."""
        if self._fired or step.rank != 0:
            return None
        self._diagnosis.add(step)
        self._last = step if step.mode == "train" else self._last
        if not self._outcome.renewed:
            return None
        if not self._holds():
            self._since = None
            return None
        if self._since is None:
            self._since = step.step
        return self._fire(step) if step.step - self._since >= _HOLD else None

    def finish(self) -> Finding | None:
        """Return what was so when the run was over."""
        if self._fired or self._since is None or self._last is None or not self._holds():
            return None
        return self._fire(self._last)

    def _holds(self) -> bool:
        losses = self._outcome.losses.values()
        if any(not one.blown_up(self.rise) and not one.stuck() for one in losses):
            return False
        return not self._outcome.improving_metric()

    def _fire(self, step: Step) -> Finding:
        self._fired = True
        blown = {name: p for name, p in self._outcome.losses.items() if p.blown_up(self.rise)}
        name, progress = max((blown or self._outcome.losses).items(), key=_height)
        return self._finding(step, name, progress, blown=name in blown)

    def _finding(self, step: Step, name: str, progress: LossProgress, *, blown: bool) -> Finding:
        start, start_error = (progress.first, 0.0) if blown else progress.start()
        stretch = progress.latest() if blown else progress.stuck()
        assert stretch is not None, "it was judged by it"
        threshold = start + self.rise * abs(start) if blown else start - self.drop * abs(start)
        error = math.hypot(start_error, stretch.error)
        margin = (stretch.level - threshold) / error if error else math.inf
        found = self._diagnosis.explain(progress, start, stretch.level, blown=blown)
        return self.found(
            step,
            since=stretch.first,
            tensor=name,
            statistic="loss",
            value=stretch.level,
            threshold=threshold,
            confidence=confidence(margin),
            seen=f"{name} {found.seen}{self._outcome.metrics_in_words()}",
            cause=found.cause,
            remedy=found.remedy,
            fault=found.fault,
            correction=found.correction,
            evidence={
                "start": start,
                "level": stretch.level,
                "standard_error": error,
                "lowest": [progress.lowest_step, progress.lowest],
                "highest": [progress.peak_step, progress.peak],
                **found.evidence,
            },
        )


def _height(entry: tuple[str, LossProgress]) -> float:
    """Return how high a loss rose, in units of its first value."""
    progress = entry[1]
    return progress.peak / abs(progress.first) if progress.first else 0.0
