"""Rule: the units of a layer are and remain copies of each other."""

from __future__ import annotations

from vinedresser.rules.advice import listed, random_initialisation
from vinedresser.rules.applicability import NO_NETWORK, Reasons
from vinedresser.rules.bounds import require_share
from vinedresser.rules.need import Need
from vinedresser.rules.signals.outcomes.outcome import Outcome
from vinedresser.rules.symptom import Symptom, SymptomRule
from vinedresser.store.reading.step import Step
from vinedresser.store.records import RunRecord


class IdenticalUnits(SymptomRule):
    """The units of a layer are and remain copies of each other.

    Units that start equal receive the same gradient and stay equal: the layer has the capacity of
    one unit (Goodfellow et al., "Deep Learning", 8.4). Fires when the ``unit_similarity`` of a
    weight tensor, the median over units of the largest absolute cosine with any other unit, is at
    least ``similarity`` at all checks from the first on, at least ``patience`` of them: a warning,
    and a stop in a training that learns less than it should. Frozen weights and those that no
    optimizer has do not count, nor those beside other weights of the same module whose units
    differ, such as the means of a layer whose weights are distributions. Units that become equal
    later were moved there by too large steps.

    Args:
        similarity: minimum similarity; copies have 1 up to rounding. Healthy wide layers are below
            0.3, but 64 random units with two inputs reach 0.9999: the closest are 0.02 apart.
        every: train steps between checks; after five of them, they become rarer.
        patience: number of checks, starting before the first update.
    """

    fault = "identical_units"
    stage = "model"
    consequences = ("outcome", "no_signal", "learning_rate_too_low", "vanishing_gradient")
    position = 190
    inapplicable = Reasons(xgboost=NO_NETWORK)

    def __init__(self, similarity: float = 0.999999, every: int = 20, patience: int = 3) -> None:
        require_share(similarity=similarity)
        super().__init__(patience)
        self.similarity = similarity
        self.every = every
        self.needs = (
            Need(
                "weights",
                every=every,
                reductions=("unit_similarity",),
                # The rule needs the first checks only, and this statistic is the most expensive.
                rarer_from=5 * every,
                required=False,
            ),
        )
        self._alike: frozenset[str] | None = None
        self._untrained: frozenset[str] = frozenset()

    def on_record(self, info: RunRecord) -> None:
        """Read which weights are not trained."""
        self._untrained = frozenset((*info.frozen, *info.unoptimized))

    def warns_early(self, symptom: Symptom, outcome: Outcome) -> bool:  # noqa: ARG002 (always)
        """See `SymptomRule.warns_early`: such a layer has the capacity of one unit."""
        return True

    def detect(self, step: Step) -> Symptom | None:
        """See `SymptomRule.detect`."""
        values = step.reduction_of("weights", "unit_similarity")
        apart = {_module(name) for name, value in values.items() if value < self.similarity}
        alike = {
            name: value
            for name, value in values.items()
            if value >= self.similarity
            and name not in self._untrained
            and (_module(name) or name) not in apart
            and (self._alike is None or name in self._alike)
        }
        self._alike = frozenset(alike)
        if not alike:
            return None
        names = list(alike)
        return Symptom(
            tensor=names[0],
            statistic="unit_similarity",
            value=alike[names[0]],
            threshold=self.similarity,
            confidence=0.99,
            seen=f"the units of {listed(names)} are copies of each other (cosine "
            f"{min(alike.values()):.6f}) after {step.step} steps",
            cause="the weights started equal, such as zeros or a constant: equal units receive "
            "equal gradients and never separate",
            remedy=random_initialisation(names),
            evidence={"unit_similarity": alike},
        )


def _module(name: str) -> str:
    """Return the path of a weight's module; "" for a weight of the model itself."""
    return name.rpartition(".")[0]
