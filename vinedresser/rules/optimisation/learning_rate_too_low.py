"""Rule: the learning rate is too low."""

from __future__ import annotations

import math
from statistics import NormalDist

from vinedresser.rules.applicability import NO_UPDATES, Reasons
from vinedresser.rules.bounds import require_above, require_between
from vinedresser.rules.signals.losses.predicted_fall import Agreement, PredictedFall
from vinedresser.rules.signals.outcomes.outcome import Outcome
from vinedresser.rules.signals.parameters.gradients import only_of_biases
from vinedresser.rules.signals.parameters.learning_rate import LearningRateSignal
from vinedresser.rules.signals.parameters.update_ratios import USUAL_CHANGE, UpdateRatios, to_usual
from vinedresser.rules.symptom import Symptom, SymptomRule
from vinedresser.store.reading.step import Step
from vinedresser.store.records import RunRecord

# Standard errors of a significant decrease of the loss.
_SURE = 2.0
# Update-to-weight ratio above which a step has damaged the weights; later steps may be small.
_THROWN = 0.1
# Divisor of the ratio at which not even a thousand steps would change the weights.
_STILL = 10.0
# Divisor of an optimizer's initial learning rate below which a schedule has lowered it.
_LOWERED = 1.5
# Share of their norm by which all steps of a run would change the weights at most.
_NOWHERE = 5e-3
# Rate of plain gradient descent (SGD) from which on a small gradient makes the steps small.
_USUAL_OF_SGD = 0.01
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
    is known, after two checks, if the training has not learned anything yet and r is below a tenth
    of ``ratio`` or so small that all steps of the run change the weights by less than 0.5 %, unless
    a schedule may raise the rate: it rose within ``patience`` checks, or is lower than that with
    which the optimizer was created, and was not higher before with the weights as still. The fault
    is `vanishing_gradient` if the gradient reaches biases, but no weights (`only_of_biases`). With
    SGD and a rate of at least 0.01, the gradient may be small because the loss is on a plateau
    before learning, as with XOR: the rule then waits for half of the run, or for its end.

    Args:
        ratio: ratio of updates to weights below which the weights do not move; healthy trainings
            have 2e-4 to 2e-3.
        share: share of the predicted decrease; the step that lowers a quadratic most reaches half.
        patience: number of consecutive checks, every 20 steps.
    """

    fault = "learning_rate_too_low"
    consequences = ("outcome", "no_signal")
    position = 270
    predecessors = ("weight_update_ratio",)
    former_names = ("update_ratio",)
    inapplicable = Reasons(
        xgboost=f"{NO_UPDATES}; loss_not_decreasing and underfitting say so",
        sklearn=f"{NO_UPDATES}; underfitting says so",
    )
    early_patience = 2

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
        # The largest rate with which an optimizer was created.
        self._created = 0.0
        # Whether all optimizers are plain gradient descent.
        self._descends = False

    def begin(self, info: RunRecord) -> None:
        """Read the learning rates of the optimizers."""
        self._descends = all(optimizer.get("type") == "SGD" for optimizer in info.optimizers)
        rates = [optimizer.get("settings", {}).get("lr") for optimizer in info.optimizers]
        self._created = max((rate for rate in rates if isinstance(rate, int | float)), default=0.0)

    def may_recover(self, symptom: Symptom) -> bool:
        """See `SymptomRule.may_recover`: on a plateau, a usual rate makes small steps, too."""
        return symptom.fault is None and self._descends and self._created >= _USUAL_OF_SGD

    def warns_early(self, symptom: Symptom, outcome: Outcome) -> bool:
        """See `SymptomRule.warns_early`: no weights move, and nothing is learned so far."""
        if symptom.statistic != "l2" or outcome.verdict().kind == "good" or self._warms_up():
            return False
        nowhere = symptom.value * (self.expected_steps or math.inf) < _NOWHERE
        return nowhere or symptom.value < self.ratio / _STILL

    def _warms_up(self) -> bool:
        """Return whether a schedule may raise the learning rate; also if the rate is not known.

        It has raised it if the rate was greater before, with the weights as still as now.
        """
        rates = [rate for _, rate in self.rate.history][-self.patience :]
        if not rates:
            return True
        at, greatest = max(self.rate.history, key=lambda one: one[1])
        if greatest > rates[-1] and at >= self._patience.since:
            return greatest < self._created / _LOWERED
        return rates[-1] > rates[0] or rates[-1] < self._created / _LOWERED

    def detect(self, step: Step) -> Symptom | None:
        """See `SymptomRule.detect`."""
        ratios, greatest = self.updates.ratios, self.updates.greatest
        if greatest is not None and greatest.median > _THROWN:
            return None
        if not ratios and (self.updates.lost or only_of_biases(step)):
            # They move by less than their rounding.
            ratios = dict.fromkeys(step.reduction_of("weights", "l2"), 0.0)
        if not ratios:
            return None
        tensor = max(ratios, key=ratios.__getitem__)
        # If steps became smaller at the same rate, the gradient is missing, not the learning rate.
        if ratios[tensor] < self.ratio and not self.updates.were_usual:
            return self._of_biases(step, ratios) or self._of_ratios(step, tensor, ratios)
        if self.outcome.opposite():
            # Such a loss has a wrong sign, or wrong labels: larger steps would do more harm.
            return None
        for agreement in self.predicted.agreements():
            if agreement.fall > _SURE * agreement.error and agreement.share >= self.share:
                return self._of_agreement(tensor, ratios[tensor], agreement)
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
            seen=f"step {step.step} changed no weights by more than {value:.1e}× their size "
            f"({len(ratios)} tensors); {USUAL_CHANGE}",
            cause="the learning rate is too low: steps are too small, and the weights hardly move"
            if value
            else "steps are so small that the weights, as rounded, do not change: the learning "
            "rate is too low, or the gradient is clipped to too small a norm",
            remedy=self.rate.scaled(factor),
            evidence={"ratios": ratios, "learning_rates": self.rate.captured},
            correction=self.rate.corrected(factor),
        )

    def _of_biases(self, step: Step, ratios: dict[str, float]) -> Symptom | None:
        """Return the symptom of weights that hardly any gradient reaches, unlike a bias."""
        found = only_of_biases(step)
        if found is None:
            return None
        value = found.weights / found.biases
        return Symptom(
            tensor=found.bias,
            statistic="l2",
            value=value,
            threshold=found.most,
            confidence=0.9,
            seen=f"at step {step.step} the gradient of {found.bias} has a norm of "
            f"{found.biases:.1e}, but those of all weights together {found.weights:.1e}",
            cause="the gradient does not reach the weights, and only biases learn: the units are "
            "all at zero or saturated, as with a threshold or a range that no value reaches, or "
            "the gradient underflows",
            remedy="inspect the outputs of each layer: one is the same for all rows; bring its "
            "inputs into the range of its activation",
            evidence={"ratios": ratios, "gradients": found.weights},
            fault="vanishing_gradient",
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
