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


class Growth(NamedTuple):
    """A quantity that grew, and the ratio to its usual size."""

    what: str
    factor: float

    @property
    def of_loss(self) -> bool:
        """Whether it is a loss."""
        return self.what.startswith("losses/")


class RecentPast:
    """Recent losses and gradient norms of one rank.

    Attributes:
        gradients: recent gradient norms.
    """

    def __init__(self) -> None:
        self.gradients = GradientNorms()
        self._losses: dict[tuple[str, str], deque[float]] = {}

    def add(self, step: Step) -> None:
        """Process a step; ignore values that are not finite."""
        for name, value in step.scalars_of("losses").items():
            if math.isfinite(value):
                key = (step.mode, name)
                self._losses.setdefault(key, deque(maxlen=_KEPT)).append(value)
        if step.mode == "train":
            self.gradients.add(step)

    def losses(self, mode: str) -> dict[str, list[float]]:
        """Return the losses of a mode by name, oldest first."""
        return {name: list(values) for (one, name), values in self._losses.items() if one == mode}

    def growth(self) -> Growth | None:
        """Return the training quantity with the greatest growth; None if none grew."""
        grown = [
            Growth(name, factor)
            for name, values in self.losses("train").items()
            if (factor := _loss_growth(values)) >= _LOSS_GROWTH
        ]
        if (factor := self.gradients.growth()) >= _GRADIENT_GROWTH:
            grown.append(Growth("the gradient norm", factor))
        return max(grown, key=lambda one: one.factor, default=None)

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


def _loss_growth(values: list[float]) -> float:
    """Return the ratio of the largest of the last three losses to the usual size."""
    before, last = values[:-3] or values[:1], values[-3:]
    usual = statistics.median(abs(value) for value in before)
    return max(abs(value) for value in last) / usual if usual else 1.0
