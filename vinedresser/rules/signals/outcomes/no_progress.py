"""Detect training losses that make no progress, and describe their trajectory."""

from __future__ import annotations

import math
from typing import Literal, NamedTuple

from vinedresser.rules.signals.base import Signal
from vinedresser.rules.signals.losses.loss_progress import LossProgress, Stretch
from vinedresser.rules.signals.losses.moving_targets import MovingTargets
from vinedresser.rules.signals.outcomes.learning_outcome import LearningOutcome
from vinedresser.store.reading.step import Step

__all__ = ["LossTrajectory", "NoProgress"]

# Steps to wait for rules that find the cause in weights and gradients, every 20 steps.
_HOLD = 20
# Rise above the start, as a share of it, that exceeds any noise.
_RISEN = 0.5
# Fall from the start, as a share of it, that counts as having learned.
_LEARNED = 0.5


class LossTrajectory(NamedTuple):
    """The trajectory of a loss without progress.

    Attributes:
        kind: "thrown_up" far above its start, "lost" after a fall, or "standing".
        blown: whether the loss stays far above its first value, which is then its start.
        start: reference value of the loss.
        start_error: standard error of the start.
        stretch: steps without progress.
        rise: ratio of the highest block to the start, or to the unit of a loss that was below zero
            (`LossProgress.size`).
        certain: whether it is a fault: the loss is far above its start, its targets are known, or
            it stands.
    """

    name: str
    kind: Literal["thrown_up", "lost", "standing"]
    progress: LossProgress
    blown: bool
    start: float
    start_error: float
    stretch: Stretch
    rise: float
    certain: bool

    @property
    def top(self) -> float:
        """The highest block mean, or the last value of a loss that exploded at once."""
        return max(self.progress.peak, self.stretch.level)

    @property
    def since(self) -> int:
        """The first step of the fault: a loss that rose did so in its highest block or before."""
        first, peak = self.stretch.first, self.progress.peak_step
        return min(first, peak) if self.kind == "thrown_up" and peak >= 0 else first

    @property
    def seen(self) -> str:
        """A description with numbers, which follows the name of the loss."""
        progress, level = self.progress, self.stretch.level
        if progress.exploded():
            return f"rose from {self.start:.4g} to {level:.4g} in {progress.values} steps"
        if self.kind == "thrown_up":
            start = min(self.start, progress.first)
            stays = "stays at" if level > start else "has only come back to"
            return (
                f"rose from {start:.4g} to {progress.peak:.4g} (from step "
                f"{progress.peak_step} on) and {stays} {level:.4g}"
            )
        if self.kind == "lost":
            return (
                f"fell from {self.start:.4g} to {progress.lowest:.4g} (step "
                f"{progress.lowest_step}) and is back at {level:.4g}"
            )
        return f"is {level:.4g} and started at {self.start:.4g}{_chance(level)}"


class NoProgress(Signal):
    """Whether no training loss makes progress (`LearningOutcome.nowhere`) for 20 steps or more.

    This is never the case while a metric improves, or if the loss rises because its targets grow
    (`MovingTargets`).

    Args:
        patience: see `LossProgress`.
        drop: see `LossProgress`.
        rise: see `LossProgress.blown_up`.

    Attributes:
        outcome: progress of losses and metrics.
        since: first step without progress; None while there is progress.
        asked: whether the last step allowed a new decision.
    """

    def __init__(self, patience: int, drop: float, rise: float) -> None:
        self.patience = patience
        self.drop = drop
        self.rise = rise
        self.outcome = LearningOutcome(patience, drop)
        self.targets = MovingTargets()
        self.since: int | None = None
        self.asked = False
        self.last: Step | None = None

    def update(self, step: Step) -> None:
        """See `Signal.update`."""
        self.asked = step.rank == 0 and self.outcome.renewed
        if step.rank == 0 and step.mode == "train":
            self.last = step
        if not self.asked:
            return
        if not self._holds():
            self.since = None
        elif self.since is None:
            self.since = step.step

    def trajectory(self, *, ended: bool = False) -> LossTrajectory | None:
        """Return the trajectory of the loss; None with progress, or without a decision now.

        Args:
            ended: the run is over, so do not wait for other rules, nor for as many steps if the
                loss rose a hundredfold (`LossProgress.unrecovered`) or 1e5-fold
                (`LossProgress.exploded`).
        """
        if self.last is None:
            return None
        held = self.since is not None and self.asked and self.last.step - self.since >= _HOLD
        if held or (ended and self.since is not None and self._holds()):
            worst = self._worst()
        elif not ended or (unrecovered := self._unrecovered()) is None:
            return None
        else:
            worst = unrecovered
        return None if worst.kind != "standing" and self._explained(worst) else worst

    def _explained(self, worst: LossTrajectory) -> bool:
        """Return whether the targets of a loss grow, so that it rises, and others with it.

        The loss of an actor is the negative estimate of its critic: it has no targets, and its size
        is that of the targets of the critic.

        Args:
            worst: trajectory of the loss that rises most.
        """
        if self.targets.explain(_short(worst.name), worst.rise):
            return True
        return any(
            self.targets.explain(_short(name), now.level / one.size)
            for name, one in self.outcome.losses.items()
            if name != worst.name and one.size and (now := one.latest()) is not None
        )

    def _holds(self) -> bool:
        return self.outcome.nowhere(self.rise) and not self.outcome.improving_metric()

    def _unrecovered(self) -> LossTrajectory | None:
        """Return the trajectory of a loss that rose and did not recover, if all of them have."""
        outcome = self.outcome
        if not outcome.losses or outcome.adversaries or outcome.improving_metric():
            return None
        name, progress = max(outcome.losses.items(), key=_height)
        stretch = _unrecovered(progress)
        if stretch is None or not all(map(_unrecovered, outcome.losses.values())):
            return None
        first = progress.first
        rise = max(progress.peak, stretch.level) / progress.size
        certain = self.targets.rule_out(_short(name), rise)
        return LossTrajectory(
            name, "thrown_up", progress, False, first, 0.0, stretch, rise, certain
        )

    def _worst(self) -> LossTrajectory:
        losses = self.outcome.losses
        blown = {name: one for name, one in losses.items() if one.blown_up(self.rise)}
        name, progress = max((blown or losses).items(), key=_height)
        start, error = (progress.first, 0.0) if blown else progress.start()
        stretch = progress.latest() if blown else progress.stuck()
        assert stretch is not None, "the decision is based on it"
        low = min(start, progress.first)
        kind: Literal["thrown_up", "lost", "standing"] = "standing"
        size = progress.size if progress.below_zero else abs(low)
        if blown or progress.thrown_up() or stretch.level - low > _RISEN * size:
            kind = "thrown_up"
        elif start - progress.lowest > _LEARNED * abs(start):
            kind = "lost"
        rise = progress.peak / size if size else math.inf
        certain = kind == "standing" or self.targets.rule_out(_short(name), rise)
        return LossTrajectory(
            name, kind, progress, bool(blown), start, error, stretch, rise, certain
        )


def _unrecovered(progress: LossProgress) -> Stretch | None:
    """Return the last steps of a loss that rose and did not recover; None for any other."""
    return progress.unrecovered() or progress.exploded()


def _short(name: str) -> str:
    """Return the name of a loss without its collection."""
    return name.removeprefix("losses/")


def _height(entry: tuple[str, LossProgress]) -> float:
    """Return the peak of a loss relative to its first value; 0 if no value is finite."""
    progress = entry[1]
    return progress.peak / progress.size if progress.values and progress.size else 0.0


def _chance(level: float) -> str:
    """Return a remark if a loss is that of guessing among equally likely classes."""
    if level <= 0 or level > math.log(20):
        return ""
    classes = round(math.exp(level))
    if classes < 2 or abs(level - math.log(classes)) > 0.01 * level:
        return ""
    return f" (ln {classes} = {math.log(classes):.4g} is the cross-entropy of guessing)"
