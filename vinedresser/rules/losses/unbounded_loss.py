"""Rule: the training loss falls without bound."""

from __future__ import annotations

import math
import statistics
from dataclasses import dataclass, field

from vinedresser.rules.applicability import NO_TERMS, Reasons
from vinedresser.rules.base import OnceRule
from vinedresser.rules.bounds import require_above
from vinedresser.rules.signals.bounded import bounded
from vinedresser.rules.signals.losses.aimless_losses import AimlessLosses
from vinedresser.rules.signals.outcomes.learning_outcome import LearningOutcome
from vinedresser.store.collections.collection import TERMS
from vinedresser.store.finding import Finding
from vinedresser.store.reading.step import Step

# Number of first values that give the scale of a loss; it is at least 1.
_FIRST = 20
# Number of consecutive values below a level.
_VALUES = 5
# Fall of the loss of one of several adversaries that no game explains, relative to `fall`: the
# returns that an actor is trained to raise may grow a thousandfold.
_OF_ADVERSARIES = 1000.0
# Minimum steps of a run at whose end a tenth of the fall suffices, and minimum ratio of the fall in
# its last third to that in the second; that of a logarithm is 0.36.
_STEPS = 100
_AT_PACE = 0.5
# Maximum number of blocks of a run.
_BLOCKS = 60


@dataclass
class _Fall:
    """The fall of one loss.

    Attributes:
        start: first step.
        first: first values.
        reached: for each level, the first step of the values below it.
        below: for each level, number of consecutive values below it.
        blocks: sums of equally many successive values.
        size: number of values in a block.
        values: number of values.
    """

    start: int
    first: list[float] = field(default_factory=list)
    reached: dict[float, int] = field(default_factory=dict)
    below: dict[float, int] = field(default_factory=dict)
    blocks: list[float] = field(default_factory=list)
    size: int = 1
    values: int = 0

    @property
    def scale(self) -> float:
        """The usual size of the first values."""
        return max(1.0, statistics.median(abs(value) for value in self.first))

    def add(self, step: int, value: float, levels: tuple[float, ...]) -> None:
        """Process the loss of a step."""
        self._add_to_blocks(value)
        if len(self.first) < _FIRST:
            self.first.append(value)
            return
        for level in levels:
            if level in self.reached:
                continue
            count = self.below.get(level, 0) + 1 if value < -level * self.scale else 0
            self.below[level] = count
            if count == _VALUES:
                self.reached[level] = step

    def keeps_pace(self, level: float) -> bool:
        """Return whether the loss ends below a level and falls about as fast as it did before."""
        if self.values < _STEPS:
            return False
        whole = self.blocks[: self.values // self.size]
        third = len(whole) // 3
        first, middle, last = (
            math.fsum(whole[at : at + third]) / (third * self.size)
            for at in (0, third, len(whole) - third)
        )
        return last < -level * self.scale and middle - last > _AT_PACE * (first - middle) > 0

    def _add_to_blocks(self, value: float) -> None:
        if self.values % self.size == 0:
            if len(self.blocks) == _BLOCKS:
                pairs = zip(self.blocks[::2], self.blocks[1::2], strict=True)
                self.blocks = [math.fsum(pair) for pair in pairs]
                self.size *= 2
            self.blocks.append(0.0)
        self.blocks[-1] += value
        self.values += 1


class UnboundedLoss(OnceRule):
    """The training loss is negative and falls without bound.

    Squared errors, cross-entropies, divergences and their sums cannot be negative, and a negative
    log-likelihood of densities falls ever more slowly. Let s be the median size of the first 20
    losses, at least 1. Fires when five consecutive losses are below -``fall`` s, unless the way
    there from -``fall`` s / 10 took more than ten times the steps of the way from the start to
    -``fall`` s / 10: then the fall slows down. At the end of a run of 100 steps, a loss below
    -``fall`` s / 10 for at most ten times as many steps suffices if its mean fell from the second
    to the last third of the run by more than half of what it fell from the first to the second. Of
    adversaries (several optimizers), only 1000 times the fall counts. Policy gradients are ignored.
    Terms that the script names (`Hook.terms`) count like losses unless the others make up for half
    of their fall, as where the scores of real and generated rows drift together.

    Args:
        fall: size of the loss, as a multiple of its first size.
    """

    severity = "warning"
    fault = "unbounded_loss"
    stage = "loss"
    consequences = ("outcome", "inside", "learning_rate_too_high")
    position = 160
    inapplicable = Reasons(xgboost=NO_TERMS, sklearn=NO_TERMS)

    def __init__(self, fall: float = 100.0) -> None:
        require_above(10, fall=fall)
        self.fall = fall
        self.outcome = LearningOutcome(200, 0.1)
        self._falls: dict[str, _Fall] = {}
        self._last: Step | None = None
        self.aimless = AimlessLosses()

    def watch(self, step: Step) -> Finding | None:
        """See `OnceRule.watch`."""
        losses = self._losses(step)
        far = _OF_ADVERSARIES * self.fall
        levels = (self.fall / 10, self.fall, far / 10, far)
        for name, value in losses.items():
            fall = self._falls.setdefault(name, _Fall(step.step))
            fall.add(step.step, bounded(value), levels)
        self._last = step
        level = far if self.outcome.adversaries else self.fall
        for name, value in losses.items():
            fall = self._falls[name]
            falls = level in fall.reached and not _slows(fall, level)
            if falls and not _made_up_for(name, losses):
                return self._finding(step, name, value, level)
        return None

    def at_end(self) -> Finding | None:
        """Return the finding for a loss that still falls at the end of the run."""
        if self._last is None or self.outcome.adversaries:
            return None
        level = self.fall / 10
        losses = self._losses(self._last)
        for name, value in losses.items():
            fall = self._falls[name]
            if (
                level in fall.reached
                and not _longer(fall, fall.reached[level], self._last.step)
                and fall.keeps_pace(level)
                and not _made_up_for(name, losses)
            ):
                return self._finding(self._last, name, value, level)
        return None

    def _losses(self, step: Step) -> dict[str, float]:
        losses = step.scalars_of("losses")
        aimed = {name: one for name, one in losses.items() if not self.aimless.includes(name)}
        if len(aimed) < len(losses):
            return aimed
        terms = {name: one for name, one in step.scalars.items() if name.startswith(TERMS)}
        return {**terms, **aimed}

    def _finding(self, step: Step, name: str, value: float, level: float) -> Finding:
        fall = self._falls[name]
        since = fall.reached.get(level / 10, fall.reached[level])
        return self.found(
            step,
            since=since,
            tensor=name,
            statistic="loss",
            value=value,
            threshold=-level * fall.scale,
            confidence=0.95,
            seen=f"{name} fell from {statistics.median(fall.first):.4g} to {value:.4g}, and does "
            "not slow down",
            cause="the loss has no minimum: it or one of its terms has the wrong sign, or a factor "
            "that the model can learn",
            remedy="check the sign of each term of the loss: the optimizer minimises it",
            evidence={"scale": fall.scale, "reached": fall.reached[level], "since": since},
        )


def _made_up_for(name: str, losses: dict[str, float]) -> bool:
    """Return whether the other named terms of a loss make up for half of the fall of one."""
    total = sum(value for other, value in losses.items() if other.startswith(TERMS))
    return name.startswith(TERMS) and total > losses[name] / 2


def _slows(fall: _Fall, level: float) -> bool:
    """Return whether a loss fell to a level more slowly than to a tenth of it."""
    return _longer(fall, fall.reached[level / 10], fall.reached[level])


def _longer(fall: _Fall, since: int, until: int) -> bool:
    """Return whether steps are more than ten times as many as those before them."""
    return until - since > 10 * (since - fall.start)
