"""Rule: the learning rate is too low."""

from __future__ import annotations

import math
from statistics import NormalDist

from vinedresser.rules.bounds import require_above, require_between
from vinedresser.rules.signals.losses.predicted_fall import Agreement, PredictedFall
from vinedresser.rules.signals.outcomes.outcome import Outcome
from vinedresser.rules.signals.parameters.learning_rate import LearningRateSignal
from vinedresser.rules.signals.parameters.update_ratios import UpdateRatios, to_usual
from vinedresser.rules.symptom import Symptom, SymptomRule
from vinedresser.store.reading.step import Step

# Standard errors of a significant decrease of the loss.
_SURE = 2.0
# Update-to-weight ratio above which a step has damaged the weights; later steps may be small.
_THROWN = 0.1
# Divisor of the ratio at which not even a thousand steps would change the weights.
_STILL = 10.0
# Share of their norm by which all steps of a run would change the weights at most.
_NOWHERE = 5e-3
# Minimum factor of the suggested learning rate.
_LEAST_CHANGE = 10.0


class LearningRateTooLow(SymptomRule):
    """The learning rate is too low: the weights hardly move, or far less than they could.

    Let r be the largest update-to-weight ratio of a check (`UpdateRatios`). Fires when r is below
    ``ratio`` at ``patience`` consecutive checks and was never in the usual range. Also fires when
    the loss decreases significantly (two standard errors), over the run or its last half, by at
    least ``share`` of what its gradient predicts to first order (`PredictedFall`): the loss is then
    almost linear over a step, so a larger step would lower it more. Applies to a training that
    learns less than it should and that no earlier step has made diverge. Warns before the outcome
    is known if the training has not learned anything yet and r is below a tenth of ``ratio`` or so
    small that all steps of the run change the weights by less than 0.5 %.

    Args:
        ratio: ratio of updates to weights below which the weights do not move; healthy trainings
            have 2e-4 to 2e-3.
        share: share of the predicted decrease; the step that lowers a quadratic most reaches half.
        patience: number of consecutive checks.
    """

    fault = "learning_rate_too_low"

    def __init__(self, ratio: float = 2e-5, share: float = 0.5, patience: int = 5) -> None:
        require_above(0, ratio=ratio)
        require_between(0, 1, share=share)
        super().__init__(patience)
        self.ratio = ratio
        self.share = share
        self.updates = UpdateRatios(20)
        self.predicted = PredictedFall()
        self.rate = LearningRateSignal()
        self.needs = self.updates.needs

    def certain(self, symptom: Symptom, outcome: Outcome) -> bool:
        """See `SymptomRule.certain`: no weights move, and nothing is learned so far."""
        if symptom.statistic != "l2" or outcome.verdict().kind == "good":
            return False
        nowhere = symptom.value * (self.expected_steps or math.inf) < _NOWHERE
        return nowhere or symptom.value < self.ratio / _STILL

    def look(self, step: Step) -> Symptom | None:
        """See `SymptomRule.look`."""
        ratios, greatest = self.updates.ratios, self.updates.greatest
        if not ratios or greatest is None or greatest.median > _THROWN:
            return None
        tensor = max(ratios, key=ratios.__getitem__)
        # If steps became smaller at the same rate, the gradient is missing, not the learning rate.
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
            f"({len(ratios)} tensors); 2e-4 to 2e-3 is usual",
            cause="the learning rate is too low: steps are too small, and the weights hardly move",
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
            confidence=NormalDist().cdf(found.fall / found.error) if found.error else 1.0,
            seen=f"the loss decreased by {found.fall:.3g} since step {found.since}, "
            f"{found.share:.0%} of what its gradients predict to first order: it is almost linear "
            "over a step",
            cause="the learning rate is too low: larger steps would lower the loss more",
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
