"""Rule: the training loss falls without bound."""

from __future__ import annotations

import statistics
from dataclasses import dataclass, field

from vinedresser.rules.base import OnceRule
from vinedresser.rules.bounds import require_above
from vinedresser.rules.signals.bounded import bounded
from vinedresser.rules.signals.outcomes.learning_outcome import LearningOutcome
from vinedresser.store.finding import Finding
from vinedresser.store.reading.step import Step

# Number of first values that give the scale of a loss; it is at least 1.
_FIRST = 20
# Number of consecutive values below a level.
_VALUES = 5


@dataclass
class _Fall:
    """The fall of one loss.

    Attributes:
        start: first step.
        first: first values.
        reached: for each level, the first step of the values below it.
        below: for each level, number of consecutive values below it.
    """

    start: int
    first: list[float] = field(default_factory=list)
    reached: dict[float, int] = field(default_factory=dict)
    below: dict[float, int] = field(default_factory=dict)

    @property
    def scale(self) -> float:
        """The usual size of the first values."""
        return max(1.0, statistics.median(abs(value) for value in self.first))

    def add(self, step: int, value: float, levels: tuple[float, float]) -> None:
        """Process the loss of a step."""
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


class UnboundedLoss(OnceRule):
    """The training loss is negative and falls without bound.

    Squared errors, cross-entropies, divergences and their sums cannot be negative, and a negative
    log-likelihood of densities falls ever more slowly. Let s be the median size of the first 20
    losses, at least 1. Fires when five consecutive losses are below -``fall`` s, unless the way
    there from -``fall`` s / 10 took more than ten times the steps of the way from the start to
    -``fall`` s / 10: then the fall slows down. Does not apply to adversaries (several optimizers).

    Args:
        fall: size of the loss, as a multiple of its first size.
    """

    severity = "warning"
    fault = "unbounded_loss"

    def __init__(self, fall: float = 100.0) -> None:
        require_above(10, fall=fall)
        self.fall = fall
        self.outcome = LearningOutcome(200, 0.1)
        self._falls: dict[str, _Fall] = {}

    def watch(self, step: Step) -> Finding | None:
        """See `OnceRule.watch`."""
        losses = step.scalars_of("losses")
        levels = (self.fall / 10, self.fall)
        for name, value in losses.items():
            fall = self._falls.setdefault(name, _Fall(step.step))
            fall.add(step.step, bounded(value), levels)
        if self.outcome.adversaries:
            return None
        for name, value in losses.items():
            fall = self._falls[name]
            if self.fall in fall.reached and not self._slows(fall):
                return self._finding(step, name, fall, value)
        return None

    def _slows(self, fall: _Fall) -> bool:
        tenth, whole = fall.reached[self.fall / 10], fall.reached[self.fall]
        return whole - tenth > 10 * (tenth - fall.start)

    def _finding(self, step: Step, name: str, fall: _Fall, value: float) -> Finding:
        tenth = fall.reached[self.fall / 10]
        return self.found(
            step,
            since=tenth,
            tensor=name,
            statistic="loss",
            value=value,
            threshold=-self.fall * fall.scale,
            confidence=0.95,
            seen=f"{name} fell from {statistics.median(fall.first):.4g} to {value:.4g}, and does "
            "not slow down",
            cause="the loss has no minimum: it or one of its terms has the wrong sign, or a factor "
            "that the model can learn",
            remedy="check the sign of each term of the loss: the optimizer minimises it",
            evidence={"scale": fall.scale, "reached": fall.reached[self.fall], "tenth": tenth},
        )
