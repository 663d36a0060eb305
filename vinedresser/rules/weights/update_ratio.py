"""Rule: optimizer steps are far too small or too large for the weights."""

from __future__ import annotations

from dataclasses import replace

from vinedresser.rules.bounds import require_above
from vinedresser.rules.signals.parameters.learning_rate import LearningRateSignal
from vinedresser.rules.signals.parameters.update_ratios import UpdateRatios, to_usual
from vinedresser.rules.symptom import Symptom, SymptomRule
from vinedresser.store.reading.step import Step


class UpdateRatio(SymptomRule):
    """Optimizer steps are far too small or too large for the weights.

    Let r_i = |update of W_i| / max(|W_i|, |W_i at the first check|) (l2 norms) for each weight
    tensor. Fires when the largest of all is below ``small`` at ``patience`` consecutive checks, or
    when their median was above ``large`` at any check, in a training that learns less than it
    should. A single step that is too large can move the weights to where the gradient vanishes, so
    later steps may be small. Tensors that do not change at all are ignored: they are a different
    fault.

    This is the published rule (SageMaker Debugger's WeightUpdateRatio) combined with the outcome.
    `LearningRateTooHigh` and `LearningRateTooLow` blame the learning rate, based on more evidence.

    Args:
        small: minimum of the largest ratio; healthy trainings have 2e-4 to 2e-3.
        large: maximum of the median ratio; healthy first steps reach 0.03.
        every: train steps between checks.
        patience: number of consecutive checks.
    """

    severity = "warning"
    waits = True

    def __init__(
        self, small: float = 2e-5, large: float = 0.1, every: int = 20, patience: int = 5
    ) -> None:
        require_above(0, small=small)
        require_above(small, large=large)
        super().__init__(patience)
        self.small = small
        self.large = large
        self.every = every
        self.updates = UpdateRatios(every)
        self.needs = self.updates.needs
        self.rate = LearningRateSignal()

    def look(self, step: Step) -> Symptom | None:
        """See `SymptomRule.look`."""
        greatest = self.updates.greatest
        if greatest is not None and greatest.longer_than(self.large):
            tensor = max(greatest.ratios, key=greatest.ratios.__getitem__)
            ratios, value = greatest.ratios, greatest.median
            return self._symptom(greatest.step, ratios, tensor, value, small=False)
        ratios = self.updates.ratios
        tensor = max(ratios, key=ratios.__getitem__, default="")
        if ratios and ratios[tensor] < self.small:
            return self._symptom(step.step, ratios, tensor, ratios[tensor], small=True)
        return None

    def _symptom(
        self, step: int, ratios: dict[str, float], tensor: str, value: float, *, small: bool
    ) -> Symptom:
        bound = self.small if small else self.large
        which = "maximum" if small else "median"
        why = "large: steps undo what was learned"
        if small:
            why = "small: the weights hardly move"
        symptom = Symptom(
            tensor=tensor,
            statistic="l2",
            value=value,
            threshold=bound,
            confidence=1 - (value / bound if small else bound / value) / 10,
            seen=f"step {step} changed the weights by {value:.1e} of their norm ({which} of "
            f"{len(ratios)} tensors); 2e-4 to 2e-3 is usual",
            cause=f"the learning rate, or the gradient, is too {why}",
            remedy=self.rate.scaled(to_usual(value)),
            evidence={"ratios": ratios},
            fault="learning_rate_too_low" if small else "learning_rate_too_high",
            correction=self.rate.corrected(to_usual(value)),
        )
        if not small or not self.updates.were_usual:
            return symptom
        return replace(
            symptom,
            cause="the gradient has vanished: earlier steps were larger",
            remedy="look for the reason: a step that was too large, dead or saturated units, a "
            "schedule that has ended",
            fault="unchanged_tensor",
            correction={},
        )
