"""Rule: trained weights do not change."""

from __future__ import annotations

from vinedresser.rules.applicability import NO_NETWORK, Reasons
from vinedresser.rules.bounds import require_above, require_at_least
from vinedresser.rules.need import optional_statistics
from vinedresser.rules.signals.parameters.update_ratios import UpdateRatios
from vinedresser.rules.symptom import Symptom, SymptomRule
from vinedresser.store.reading.step import Step
from vinedresser.store.records import RunRecord


class UnchangedTensor(SymptomRule):
    """Trained weights do not change, or hardly any more, and the run learns little.

    A weight is unchanged if its norm, mean and standard deviation differ by no more than
    ``tolerance``, relatively, from the previous check. Fires when a weight that is neither frozen
    nor missing from the optimizer is unchanged at ``patience`` consecutive checks, in a training
    that learns less than it should. Also fires when the updates of all weights, once usual, are
    below ``small`` of their norms (`UpdateRatios`): then the gradient has vanished.

    Args:
        tolerance: relative difference; 0 requires equal values.
        every: train steps between checks.
        patience: number of consecutive checks.
        small: minimum of the largest ratio of updates to weights; healthy trainings have 2e-4 to
            2e-3.
    """

    severity = "warning"
    fault = "unchanged_tensor"
    stage = "inside"
    consequences = ("outcome",)
    position = 370
    predecessors = ("unchanged_tensor",)
    inapplicable = Reasons(xgboost=NO_NETWORK)

    def __init__(
        self, tolerance: float = 0.0, every: int = 20, patience: int = 5, small: float = 2e-5
    ) -> None:
        require_at_least(0, tolerance=tolerance)
        require_above(0, small=small)
        super().__init__(patience)
        self.tolerance = tolerance
        self.every = every
        self.small = small
        self.updates = UpdateRatios(every)
        self.needs = optional_statistics(every, weights=("l2", "std", "mean"))
        self._untrained: frozenset[str] = frozenset()
        self._last: dict[str, tuple[float, ...]] = {}
        self._unchanged: dict[str, int] = {}

    def on_record(self, info: RunRecord) -> None:
        """Read the names of weights that are not trained."""
        self._untrained = frozenset((*info.frozen, *info.unoptimized))

    def detect(self, step: Step) -> Symptom | None:
        """See `SymptomRule.detect`."""
        norms, stds, means = (step.reduction_of("weights", word) for word in ("l2", "std", "mean"))
        for name, norm in norms.items():
            if name in self._untrained:
                continue
            now = (norm, stds[name], means[name])
            same = name in self._last and all(map(self._equal, now, self._last[name]))
            self._unchanged[name] = self._unchanged.get(name, 0) + 1 if same else 0
            self._last[name] = now
        still = [name for name, count in self._unchanged.items() if count]
        if not still:
            return self._vanished(step)
        longest = max(still, key=self._unchanged.__getitem__)
        return Symptom(
            tensor=longest,
            statistic="l2",
            value=self._last[longest][0],
            threshold=self.tolerance,
            confidence=0.9,
            seen=f"{len(still)} of {len(norms)} weights have not changed, {longest} for "
            f"{self._unchanged[longest]} checks",
            cause="no gradient arrives, the optimizer takes no step, or steps are too small for "
            "the precision of the weights",
            remedy=f"check gradients/{longest.partition('/')[2]}: if it is zero, find out what "
            "cuts it off; otherwise raise the learning rate or keep the weights in float32",
            evidence={"unchanged": still},
        )

    def may_recover(self, symptom: Symptom) -> bool:
        """See `SymptomRule.may_recover`: on a plateau, gradients are small, but not zero."""
        return "ratios" in symptom.evidence

    def _vanished(self, step: Step) -> Symptom | None:
        """Return the symptom of weights that hardly move any more."""
        ratios = self.updates.ratios
        largest = max(ratios, key=ratios.__getitem__, default="")
        if not (largest and self.updates.were_usual and ratios[largest] < self.small):
            return None
        value = ratios[largest]
        return Symptom(
            tensor=largest,
            statistic="l2",
            value=value,
            threshold=self.small,
            confidence=1 - value / self.small / 10,
            seen=f"step {step.step} changed the weights by {value:.1e} of their norm (maximum of "
            f"{len(ratios)} tensors); 2e-4 to 2e-3 is usual",
            cause="the gradient has vanished: earlier steps were larger",
            remedy="look for the reason: a step that was too large, dead or saturated units, a "
            "schedule that has ended",
            evidence={"ratios": ratios},
        )

    def _equal(self, one: float, other: float) -> bool:
        return abs(one - other) <= self.tolerance * max(abs(one), abs(other))
