"""Base class of rules about the scale of inputs and targets."""

from __future__ import annotations

import math

from vinedresser.rules.signals.outcomes.outcome import Outcome
from vinedresser.rules.signals.outcomes.verdict import Verdict
from vinedresser.rules.symptom import Symptom, SymptomRule
from vinedresser.rules.trees.ensemble import Ensemble
from vinedresser.store.finding import Finding
from vinedresser.store.reading.step import Step
from vinedresser.store.records import RunRecord

# Multiple of the largest usual scale of which no training makes up by itself.
_FAR = 30.0


class ScaleRule(SymptomRule):
    """A symptom that counts immediately when the loss is not finite.

    Such a run ends before there are enough checks and before its outcome can be judged. Tree models
    are ignored: they split between values of any scale.

    Args:
        patience: number of consecutive checks while the loss is finite.
    """

    def begin(self, info: RunRecord) -> None:
        """Read whether the model consists of trees."""
        self._done = Ensemble(info).trees

    def warns_early(self, symptom: Symptom, outcome: Outcome) -> bool:
        """See `SymptomRule.warns_early`: a far wrong scale, and simple models are far better."""
        return symptom.value >= _FAR * symptom.threshold and outcome.behind()

    def watch(self, step: Step) -> Finding | None:
        """See `OnceRule.watch`."""
        finding = super().watch(step)
        if finding or self._seen is None:
            return finding
        if all(math.isfinite(value) for value in step.scalars_of("losses").values()):
            return None
        return self._finding(Verdict("poor", f"the loss is not finite at step {step.step}"))
