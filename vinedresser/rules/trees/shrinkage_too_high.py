"""Rule: the steps of boosted trees are so large that the loss rises."""

from __future__ import annotations

from vinedresser.rules.applicability import TREES_ONLY
from vinedresser.rules.base import OnceRule
from vinedresser.rules.bounds import require_above, require_at_least
from vinedresser.rules.need import Need
from vinedresser.rules.signals.bounded import finite_scalars
from vinedresser.rules.trees.ensemble import Ensemble
from vinedresser.store.finding import Finding
from vinedresser.store.reading.step import Step
from vinedresser.store.records import RunRecord

# A full step, which minimises the loss of a leaf to second order.
_FULL = 1.0


class ShrinkageTooHigh(OnceRule):
    """Boosting with more than full steps raises its training loss.

    Each tree takes the learning rate times a Newton step in each of its leaves (Friedman, "Greedy
    function approximation", Ann. Stat. 29, 2001, section 5; Chen and Guestrin, "XGBoost", KDD 2016,
    eq. 5). With a rate of at most 1, such steps lower the loss of the rows that they are fitted to;
    with a rate above 2, they raise a squared error.

    Fires when the rate is above 1 and a training loss has been above ``rise`` times its value after
    the first round for ``rounds`` rounds in a row.

    Args:
        rise: factor between the training loss and that after the first round.
        rounds: number of consecutive rounds.
    """

    fault = "learning_rate_too_high"
    position = 530
    inapplicable = TREES_ONLY

    def __init__(self, rise: float = 2.0, rounds: int = 5) -> None:
        require_above(1, rise=rise)
        require_at_least(1, rounds=rounds)
        self.rise = rise
        self.rounds = rounds
        self.needs = (Need("losses", required=False),)
        self._rate = 0.0
        # By training loss: the first value, and the number of rounds in a row above it.
        self._first: dict[str, float] = {}
        self._above: dict[str, int] = {}

    def begin(self, info: RunRecord) -> None:
        """Read the learning rate of the ensemble."""
        self._rate = Ensemble(info).shrinkage or 0.0
        self._done = self._rate <= _FULL

    def watch(self, step: Step) -> Finding | None:
        """See `OnceRule.watch`."""
        for name, value in finite_scalars(step.scalars_of("losses")).items():
            first = self._first.setdefault(name, value)
            above = value > self.rise * first > 0
            self._above[name] = self._above.get(name, 0) + 1 if above else 0
            if self._above[name] >= self.rounds:
                return self._finding(step, name, value)
        return None

    def _finding(self, step: Step, name: str, value: float) -> Finding:
        first = self._first[name]
        return self.found(
            step,
            since=step.step - self.rounds + 1,
            tensor=name,
            statistic="loss",
            value=value,
            threshold=self.rise * first,
            confidence=0.95,
            seen=f"{name} was {first:.4g} after the first round and is {value:.4g}: it has been "
            f"more than {self.rise:g} times as high for {self.rounds} rounds",
            cause=f"the learning rate (eta) of {self._rate:g} is too high: above 1, each tree goes "
            "beyond the minimum that it was fitted to",
            remedy="use a learning rate (eta) of 0.3 or less",
            evidence={"first": first, "learning_rate": self._rate},
        )
