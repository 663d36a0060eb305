"""Jumps of the learning rate after which the loss loses what it had gained."""

from __future__ import annotations

import math
import statistics
from collections import deque
from itertools import pairwise
from typing import NamedTuple

from vinedresser.rules.advice import Advice
from vinedresser.rules.need import Need
from vinedresser.rules.signals.base import Signal
from vinedresser.rules.signals.bounded import bounded
from vinedresser.rules.signals.parameters.learning_rate import LearningRateSignal
from vinedresser.store.reading.step import Step

__all__ = ["Jump", "LostByJump", "RateJump"]

# Ratio to the maximum so far that is a jump, and the checks before at which the rate did not rise.
_FACTOR, _CHECKS = 3.0, 5
# Number of losses that give a level, and of first losses that give the start.
_LEVEL, _START = 40, 20
# Losses that are kept: a check is at most 100 steps ago.
_KEPT = 160
# Steps after a jump.
_PATIENCE = 60
# Minimum fall before the jump, as a share of the start, and share of it that has to be lost again.
_LEARNED, _LOST = 0.2, 0.5


class Jump(NamedTuple):
    """A jump of the learning rate.

    Attributes:
        last: step of the last check before it.
        first: step of the first check after it.
        levels: median of the losses before it by name.
    """

    last: int
    first: int
    before: float
    after: float
    levels: dict[str, float]

    def __str__(self) -> str:
        return (
            f"the learning rate jumped from {self.before:.3g} to {self.after:.3g} between steps "
            f"{self.last} and {self.first}"
        )

    @property
    def advice(self) -> Advice:
        """Cause and remedy of the harm that it does."""
        return Advice(
            cause=f"the learning rate became {self.after / self.before:.3g} times as high as "
            "before: a wrong factor or milestone of a schedule, or one that starts anew",
            remedy=f"keep the learning rate at or below {self.before:.3g}, and go on from a "
            f"checkpoint before step {self.first}",
        )


class LostByJump(NamedTuple):
    """A loss that a jump of the learning rate has thrown back.

    Attributes:
        name: full name of the loss.
        start, level, now: the loss at its start, before the jump and now (medians).
    """

    name: str
    start: float
    level: float
    now: float
    jump: Jump


class RateJump(Signal):
    """Whether the learning rate has jumped to a new maximum, and the loss has been lost since.

    A jump is a rise from one check to the next above three times the maximum so far, after five
    checks without a rise: warm-ups rise from check to check, and cycles and restarts do not exceed
    their maximum.

    Attributes:
        jump: the last jump, unless the rate has fallen to a third since; None without.
    """

    needs = (Need("losses"),)

    def __init__(self) -> None:
        self.rate = LearningRateSignal()
        self._start: dict[str, list[float]] = {}
        self._recent: dict[str, deque[tuple[int, float]]] = {}
        self._checks: deque[tuple[int, float]] = deque(maxlen=_CHECKS)
        self._greatest = 0.0
        self.jump: Jump | None = None
        self._step = 0

    def update(self, step: Step) -> None:
        """See `Signal.update`."""
        if step.rank != 0 or step.mode != "train":
            return
        self._step = step.step
        for name, value in step.scalars_of("losses").items():
            if not math.isfinite(value):
                continue
            start = self._start.setdefault(name, [])
            if len(start) < _START:
                start.append(bounded(value))
            self._recent.setdefault(name, deque(maxlen=_KEPT)).append((step.step, bounded(value)))
        if self.rate.history and self.rate.history[-1][0] == step.step:
            self._look(*self.rate.history[-1])

    def lost(self) -> LostByJump | None:
        """Return the first loss, if all have lost half of what they had gained; else None."""
        jump = self.jump
        if jump is None or self._step < jump.first + _PATIENCE or not jump.levels:
            return None
        found = []
        now = self._levels(self._step)
        for name, level in jump.levels.items():
            start = statistics.median(self._start[name])
            fall = start - level
            # One of several losses that stays low is enough.
            if not fall > _LEARNED * abs(start) or now[name] < level + _LOST * fall:
                return None
            found.append(LostByJump(name, start, level, now[name], jump))
        return found[0]

    def _look(self, step: int, rate: float) -> None:
        rate = abs(rate)
        rates = [one for _, one in self._checks]
        steady = len(rates) == _CHECKS and all(later <= one for one, later in pairwise(rates))
        if steady and rate > _FACTOR * self._greatest > 0:
            last = self._checks[-1][0]
            self.jump = Jump(last, step, rates[-1], rate, self._levels(last))
        elif self.jump is not None and rate < self.jump.after / _FACTOR:
            self.jump = None
        self._greatest = max(self._greatest, rate)
        self._checks.append((step, rate))

    def _levels(self, until: int) -> dict[str, float]:
        """Return the median of the last losses up to a step by name."""
        found = {}
        for name, recent in self._recent.items():
            values = [value for at, value in recent if at <= until][-_LEVEL:]
            if len(values) == _LEVEL:
                found[name] = statistics.median(values)
        return found
