"""A rule of a user's own, for the trials of a sweep."""

from __future__ import annotations

from vinedresser.rules.need import Need
from vinedresser.rules.symptom import Symptom, SymptomRule
from vinedresser.store.reading.step import Step


class HighLoss(SymptomRule):
    """The loss is high, and what the training comes to is poor."""

    def __init__(self) -> None:
        super().__init__(patience=2)
        self.needs = (Need("losses"),)

    def detect(self, step: Step) -> Symptom | None:
        """See `SymptomRule.detect`."""
        loss = max(step.scalars_of("losses").values())
        if loss < 5:
            return None
        return Symptom("loss", "loss", loss, 5.0, 0.5, f"the loss is {loss:g}", "?", "lower it")
