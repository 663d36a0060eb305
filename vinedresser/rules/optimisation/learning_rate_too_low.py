"""Rule: the learning rate is too low."""

from __future__ import annotations

from typing import TYPE_CHECKING

from vinedresser.errors import ConfigError
from vinedresser.rules.signals.confidence import confidence
from vinedresser.rules.signals.losses.predicted_fall import Agreement, PredictedFall
from vinedresser.rules.signals.parameters.learning_rate import LearningRateSignal
from vinedresser.rules.signals.parameters.update_ratios import UpdateRatios, to_usual
from vinedresser.rules.symptom import Symptom, SymptomRule

if TYPE_CHECKING:
    from vinedresser.store.reading.step import Step

__all__ = ["LearningRateTooLow"]

# Standard errors by which a loss surely falls.
_SURE = 2.0
# A step that long, as update-to-weight ratio, has thrown the weights; the next ones may be small.
_THROWN = 0.1
# The least that is tried instead.
_LEAST_CHANGE = 10.0


class LearningRateTooLow(SymptomRule):
    """The learning rate is too low: the weights hardly move, or far less than they could.

    With r the greatest update-to-weight ratio of a look (`UpdateRatios`): fires when r is below
    ``ratio`` at ``patience`` looks in a row, and never was a usual one; or when the loss surely
    falls (two standard errors), over the run or its last half, by ``share`` or more of what its
    gradient promises to first order (`PredictedFall`): then the loss is as good as straight over a
    step, and a longer one would lower it by more. In a training that learns less than it should,
    and that no step has thrown off before.

    Args:
        ratio: of updates to weights, below which nothing moves; healthy trainings have 2e-4 to
            2e-3.
        share: of the promised fall; the step that lowers a quadratic the most reaches half.
        patience: looks in a row.
    """

    fault = "learning_rate_too_low"

    def __init__(self, ratio: float = 2e-5, share: float = 0.5, patience: int = 5) -> None:
        if not ratio > 0:
            raise ConfigError(f"ratio = {ratio:g}: must be greater than 0")
        if not 0 < share < 1:
            raise ConfigError(f"share = {share:g}: must lie between 0 and 1")
        super().__init__(patience)
        self.ratio = ratio
        self.share = share
        self.updates = UpdateRatios(20)
        self.predicted = PredictedFall()
        self.rate = LearningRateSignal()
        self.needs = self.updates.needs

    def look(self, step: Step) -> Symptom | None:
        """See `SymptomRule.look`."""
        ratios, greatest = self.updates.ratios, self.updates.greatest
        if not ratios or greatest is None or greatest.median > _THROWN:
            return None
        tensor = max(ratios, key=ratios.__getitem__)
        # Steps that have become small at the same rate lack a gradient, not a rate.
        if ratios[tensor] < self.ratio and not self.updates.were_usual:
            return self._of_ratios(step, tensor, ratios)
        for one in self.predicted.agreements():
            if one.fall > _SURE * one.error and one.share >= self.share:
                return self._of_agreement(tensor, ratios[tensor], one)
        return None

    def _of_ratios(self, step: Step, tensor: str, ratios: dict[str, float]) -> Symptom:
        value = ratios[tensor]
        factor = to_usual(value)
        return Symptom(
            tensor=tensor,
            statistic="l2",
            value=value,
            threshold=self.ratio,
            confidence=1 - value / self.ratio / 10,
            seen=f"step {step.step} changed no weights by more than {value:.1e} of their norm "
            f"({len(ratios)} tensors) where 2e-4 to 2e-3 is usual",
            cause="the learning rate is too low: steps are too small, the weights hardly move",
            remedy=self.rate.scaled(factor),
            evidence={"ratios": ratios, "learning_rates": self.rate.captured},
            correction=self.rate.corrected(factor),
        )

    def _of_agreement(self, tensor: str, ratio: float, found: Agreement) -> Symptom:
        factor = max(to_usual(ratio), _LEAST_CHANGE)
        return Symptom(
            tensor=tensor,
            statistic="loss",
            value=found.share,
            threshold=self.share,
            confidence=confidence(found.fall / found.error) if found.error else 1.0,
            seen=f"the loss fell by {found.fall:.3g} since step {found.since}, {found.share:.0%} "
            "of what its gradients promise to first order: over a step it is as good as straight",
            cause="the learning rate is too low: steps are too small, longer ones would lower the "
            "loss by more",
            remedy=self.rate.scaled(factor),
            evidence={
                "share": found.share,
                "fall": found.fall,
                "standard_error": found.error,
                "ratio": ratio,
                "learning_rates": self.rate.captured,
            },
            correction=self.rate.corrected(factor),
        )
