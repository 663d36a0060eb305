"""Rule: gradients accumulate over steps because they are not cleared."""

from __future__ import annotations

import math

from vinedresser.rules.bounds import require_above
from vinedresser.rules.signals.parameters.gradients import GradientGrowth
from vinedresser.rules.symptom import Symptom, SymptomRule
from vinedresser.store.reading.step import Step

_CONFIDENCE = 0.8


class GradientsNotCleared(SymptomRule):
    """Gradients accumulate over steps because they are not cleared.

    With the l2 norm n of the whole gradient and the loss x at a check, fires when n / n_first >
    ``growth`` * max(1, x / x_first) at ``patience`` consecutive checks, in a training that learns
    less than it should. A running sum grows by itself; if too large a step makes the training
    diverge, the loss grows with the gradient. Source: A. Karpathy's list of common mistakes; in an
    example, the norm grew 23-fold without zero_grad and fell to 0.6 with it.

    Args:
        growth: growth of the norm beyond that of the loss. Half of the observed 23; healthy deep
            networks reach 19, but have a good outcome.
        every: train steps between checks.
        patience: number of consecutive checks.
    """

    fault = "gradients_not_cleared"

    def __init__(self, growth: float = 10.0, every: int = 20, patience: int = 5) -> None:
        require_above(1, growth=growth)
        super().__init__(patience)
        self.growth = growth
        self.every = every
        self.gradients = GradientGrowth(every)
        self.needs = self.gradients.needs
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
            seen=f"the gradient norm is {growth:.3g} times its initial value "
            f"({self.gradients.first:.3g}), while the loss grew {rise:.2g}-fold",
            cause="gradients accumulate over steps instead of being cleared",
            remedy="call optimizer.zero_grad() before each backward pass",
            evidence={"growth": growth, "loss_rise": rise},
        )
