"""Rule: the steps of the optimizer are far too small or too large for the weights."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from vinedresser.errors import ConfigError
from vinedresser.rules.signals.learning_rate import LearningRate
from vinedresser.rules.signals.update_ratios import UpdateRatios
from vinedresser.rules.symptom import Symptom, SymptomRule

if TYPE_CHECKING:
    from vinedresser.capture.store.step import Step
    from vinedresser.infra.run_directory import RunRecord

__all__ = ["UpdateRatio"]

# What is usual (Karpathy, "A Recipe for Training Neural Networks": about 1e-3).
_USUAL = 1e-3
# The factor by which a correction changes the learning rate at the most.
_MOST = 1e3


class UpdateRatio(SymptomRule):
    """The steps of the optimizer are far too small or too large for the weights.

    With r_i = |update of W_i| / max(|W_i|, |W_i at the first look|) (l2 norms) of each weight
    tensor: fires when the greatest of all is below ``small`` at ``patience`` looks in a row, or
    when their median was above ``large`` at any look, in a training that learns less than it
    should. One step that is too large is enough to throw the weights where no gradient is left; the
    steps that follow may be small. Tensors that do not change at all are left out: they are another
    fault.

    Args:
        small: the greatest ratio below which it fires; healthy ones were 2e-4 to 2e-3.
        large: the median ratio above which it fires; healthy first steps reach 0.03.
        every: train steps from one look to the next.
        patience: looks in a row.
    """

    def __init__(
        self, small: float = 2e-5, large: float = 0.1, every: int = 20, patience: int = 5
    ) -> None:
        if not 0 < small < large:
            raise ConfigError(
                f"small = {small:g}, large = {large:g}: must be above 0, and small the smaller"
            )
        if every < 1:
            raise ConfigError(f"every = {every}: must be at least 1 step")
        super().__init__(patience)
        self.small = small
        self.large = large
        self.every = every
        self.updates = UpdateRatios(every)
        self.needs = self.updates.needs
        self._rate: LearningRate | None = None
        self._thrown: Symptom | None = None

    def begin(self, info: RunRecord) -> None:
        """Take note of the learning rate."""
        self._rate = LearningRate.among(info.parameters)

    def look(self, step: Step) -> Symptom | None:
        """See `SymptomRule.look`."""
        ratios, median = self.updates.ratios, self.updates.median
        if ratios and median > self.large:
            greatest = max(ratios, key=ratios.__getitem__)
            if self._thrown is None or median > self._thrown.value:
                self._thrown = self._symptom(step, ratios, greatest, median, small=False)
        if self._thrown is not None or not ratios:
            return self._thrown
        greatest = max(ratios, key=ratios.__getitem__)
        if ratios[greatest] < self.small:
            return self._symptom(step, ratios, greatest, ratios[greatest], small=True)
        return None

    def _symptom(
        self, step: Step, ratios: dict[str, float], tensor: str, value: float, *, small: bool
    ) -> Symptom:
        bound = self.small if small else self.large
        which = "the greatest" if small else "the median"
        change = min(_USUAL / value, _MOST) if small else max(_USUAL / value, 1 / _MOST)
        # A power of ten: more is not known.
        change = 10.0 ** round(math.log10(change))
        return Symptom(
            tensor=tensor,
            statistic="l2",
            value=value,
            threshold=bound,
            confidence=1 - (value / bound if small else bound / value) / 10,
            seen=f"step {step.step} changed the weights by {value:.1e} of their norm ({which} of "
            f"{len(ratios)} tensors) where 2e-4 to 2e-3 is usual",
            cause="a learning rate, or a gradient, that is too "
            + (
                "small: the weights hardly move"
                if small
                else "large: a step undoes what was learned"
            ),
            remedy=self._remedy(change, small=small),
            evidence={"ratios": ratios},
            fault="learning_rate_too_low" if small else "learning_rate_too_high",
            correction=self._correction(change),
        )

    def _remedy(self, change: float, *, small: bool) -> str:
        if self._rate is None:
            return f"a learning rate {change:g} times {'as large' if small else 'what it is'}"
        return f"{self._rate.name} {self._changed(change):g} instead of {self._rate.value:g}"

    def _correction(self, change: float) -> dict[str, Any]:
        return {self._rate.name: self._changed(change)} if self._rate else {}

    def _changed(self, change: float) -> float:
        assert self._rate is not None, "asked for only where it is known"
        return float(f"{abs(self._rate.value) * change:.1e}")
