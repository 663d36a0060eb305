"""Rule: gradients of one step are added to those of the steps before."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from vinedresser.errors import ConfigError
from vinedresser.rules.signals.parameters.gradient_growth import GradientGrowth
from vinedresser.rules.symptom import Symptom, SymptomRule

if TYPE_CHECKING:
    from vinedresser.store.reading.step import Step

__all__ = ["GradientsNotCleared"]

_CONFIDENCE = 0.8


class GradientsNotCleared(SymptomRule):
    """Gradients of one step are added to those of the steps before.

    With n the l2 norm of the whole gradient, and x the loss, at a look: fires when
    n / n_first > ``growth`` * max(1, x / x_first) at ``patience`` looks in a row, in a training
    that learns less than it should. A running sum grows by itself; where the training is thrown off
    by too large a step, the loss grows with the gradient. Source: A. Karpathy's list of common
    mistakes; without zero_grad the norm was seen to grow 23-fold, with it to fall to 0.6.

    Args:
        growth: of the norm, beyond that of the loss. Half of the 23 that was seen; healthy deep
            networks reach 19, and are kept out by the outcome.
        every: train steps from one look to the next.
        patience: looks in a row.
    """

    fault = "gradients_not_cleared"

    def __init__(self, growth: float = 10.0, every: int = 20, patience: int = 5) -> None:
        if not growth > 1:
            raise ConfigError(f"growth = {growth:g}: must be greater than 1")
        super().__init__(patience)
        self.growth = growth
        self.every = every
        self.gradients = GradientGrowth(every)
        self.needs = self.gradients.needs[:1]
        self._losses: dict[str, float] = {}

    def look(self, step: Step) -> Symptom | None:
        """See `SymptomRule.look`."""
        rise = 1.0
        for name, loss in step.scalars_of("losses").items():
            first = abs(self._losses.setdefault(name, loss))
            rise = max(rise, abs(loss) / first) if first else math.inf
        growth = self.gradients.growth
        if not growth > self.growth * rise:
            return None
        return Symptom(
            tensor="gradients",
            statistic="l2",
            value=growth,
            threshold=self.growth * rise,
            confidence=_CONFIDENCE,
            seen=f"the norm of the gradient is {growth:.3g} times its first one "
            f"({self.gradients.first:.3g}), while the loss grew {rise:.2g}-fold",
            cause="gradients are added up over the steps instead of being cleared",
            remedy="optimizer.zero_grad() before each backward pass",
            evidence={"growth": growth, "loss_rise": rise},
        )
