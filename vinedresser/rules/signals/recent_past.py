"""Recent losses and gradient norms of a rank, to tell growth from a sudden fault."""

from __future__ import annotations

import math
import statistics
from collections import deque
from typing import NamedTuple

from vinedresser.rules.signals.parameters.gradients import GradientNorms
from vinedresser.store.reading.step import Step

__all__ = ["Growth", "RecentPast"]

# Minimum ratio to the usual size that counts as growth.
_LOSS_GROWTH = 10.0
_GRADIENT_GROWTH = 100.0
_KEPT = 50
# Number of first losses that give the start.
_START = 5


class Growth(NamedTuple):
    """A quantity that grew.

    Attributes:
        what: name of a loss, or "the gradient norm".
        factor: ratio to its usual size.
        since: first step at which it was that large; None if unknown.
    """

    what: str
    factor: float
    since: int | None = None

    @property
    def of_loss(self) -> bool:
        """Whether it is a loss."""
        return self.what.startswith("losses/")


class RecentPast:
    """Recent losses and gradient norms of one rank."""

    def __init__(self) -> None:
        self.gradients = GradientNorms()
        self._losses: dict[tuple[str, str], deque[float]] = {}
        # Of training losses: the first values, and the step since which all are far above them.
        self._start: dict[str, list[float]] = {}
        self._risen: dict[str, int] = {}

    def add(self, step: Step) -> None:
        """Process a step; ignore values that are not finite."""
        for name, value in step.scalars_of("losses").items():
            if math.isfinite(value):
                key = (step.mode, name)
                self._losses.setdefault(key, deque(maxlen=_KEPT)).append(value)
                if step.mode == "train":
                    self._compare(name, step.step, value)
        if step.mode == "train":
            self.gradients.add(step)

    def losses(self, mode: str) -> dict[str, list[float]]:
        """Return the losses of a mode by name, oldest first."""
        return {name: list(values) for (one, name), values in self._losses.items() if one == mode}

    def growth(self) -> Growth | None:
        """Return the loss with the greatest growth, or else that of the gradient; None without.

        A loss has grown relative to its recent values, or to its start. Gradients grow with it.
        """
        grown = [
            Growth(name, factor, self._risen.get(name))
            for name, values in self.losses("train").items()
            if (factor := max(_loss_growth(values), self._rise(name))) >= _LOSS_GROWTH
        ]
        if not grown and (factor := self.gradients.growth()) >= _GRADIENT_GROWTH:
            return Growth("the gradient norm", factor)
        return max(grown, key=lambda one: one.factor, default=None)

    def _compare(self, name: str, step: int, value: float) -> None:
        """Compare a training loss with its start."""
        start = self._start.setdefault(name, [])
        if len(start) < _START:
            start.append(abs(value))
            if len(start) == _START and _jumped(start):
                self._risen[name] = step - _START + 2
        elif abs(value) < _LOSS_GROWTH * _usual(start):
            self._risen.pop(name, None)
        else:
            self._risen.setdefault(name, step)

    def _rise(self, name: str) -> float:
        """Return the ratio of the last training loss to its start, if it is that of a growth."""
        usual = _usual(self._start.get(name, [0.0]))
        if name not in self._risen or not usual:
            return 1.0
        return abs(self._losses["train", name][-1]) / usual

    def in_words(self, mode: str) -> str:
        """Return text such as "before it: losses/x 2.3, 40, 1e+09; gradient norm 3 at step 20"."""
        parts = [
            f"{name} {', '.join(f'{value:.3g}' for value in values[-3:])}"
            for name, values in self.losses(mode).items()
        ]
        if self.gradients.norms:
            at, norm = self.gradients.norms[-1]
            parts.append(f"gradient norm {norm:.3g} at step {at}")
        return f"before it: {'; '.join(parts)}" if parts else "nothing was captured before it"


def _jumped(start: list[float]) -> bool:
    """Return whether all but the first of the first losses are far above the first."""
    first, *others = start
    return first > 0 and min(others, default=0.0) >= _LOSS_GROWTH * first


def _usual(start: list[float]) -> float:
    """Return the usual size of the first losses: what the first step has thrown off counts not."""
    return start[0] if _jumped(start) else statistics.median(start)


def _loss_growth(values: list[float]) -> float:
    """Return the ratio of the largest of the last three losses to the usual size."""
    before, last = values[:-3] or values[:1], values[-3:]
    usual = statistics.median(abs(value) for value in before)
    return max(abs(value) for value in last) / usual if usual else 1.0
