"""Rule: the learning rate of boosted trees is far too low for the number of rounds."""

from __future__ import annotations

from vinedresser.rules.base import OnceRule
from vinedresser.rules.bounds import require_at_least, require_between
from vinedresser.rules.need import Need
from vinedresser.rules.signals.bounded import finite_scalars
from vinedresser.rules.trees.ensemble import Ensemble, groups_of, tree_sizes
from vinedresser.store.finding import Finding
from vinedresser.store.reading.step import Step
from vinedresser.store.records import RunRecord

# Share of a run of known length after which it was not ended early.
_WHOLE = 0.95
# Minimum fall of a loss in the last third of the run, as a share of that in the first third: the
# rounds still add as much as they did.
_STEADY = 0.5
# The fall of the loss that a remedy aims at: learning rate times rounds.
_USUAL = 3.0


class ShrinkageTooLow(OnceRule):
    """Boosting ended although its trees, all together, could hardly move a prediction.

    A tree contributes its learning rate r of a full step, so N rounds move a prediction by at most
    the share 1 - (1 - r)^N of the way (Friedman, "Greedy function approximation", Ann. Stat. 29,
    2001, section 5). Fires at the end of the run if this share is below ``reach``, no training loss
    has fallen by ``drop`` of its first value, and all losses still fall steadily: more rounds or a
    higher rate would have helped. It is therefore silent if an evaluation loss does not fall (early
    stopping, data without signal), if trees have no splits, if the ensemble continues an earlier
    one, and if a run of known length was cut short.

    Args:
        reach: share of a full step that all rounds together must be able to move a prediction.
        drop: share of the first training loss; a larger fall counts as learning.
        rounds: minimum number of rounds.
    """

    severity = "warning"
    fault = "learning_rate_too_low"
    modes = ("train", "eval")
    silent_after_stop = True

    def __init__(self, reach: float = 0.1, drop: float = 0.1, rounds: int = 10) -> None:
        require_between(0, 1, reach=reach, drop=drop)
        require_at_least(3, rounds=rounds)
        self.reach = reach
        self.drop = drop
        self.rounds = rounds
        self.needs = (
            Need("losses", modes=("train", "eval"), required=False),
            tree_sizes(10),
        )
        self._rate: float | None = None
        self._trees: float | None = None
        self._fresh = False
        self._last: Step | None = None
        # Values of each loss by round, in training and in evaluations.
        self._train: dict[str, list[float]] = {}
        self._eval: dict[str, list[float]] = {}

    def begin(self, info: RunRecord) -> None:
        """Read the learning rate of the ensemble."""
        ensemble = Ensemble(info)
        self._rate = ensemble.shrinkage
        self._trees = ensemble.number("num_trees")
        self._fresh = self._trees is None and not ensemble.settings.get("warm_start")
        self._over = self._rate is None or not 0 < self._rate < self.reach

    def watch(self, step: Step) -> Finding | None:
        """See `OnceRule.watch`."""
        series = self._train if step.mode == "train" else self._eval
        for name, value in finite_scalars(step.scalars_of("losses")).items():
            series.setdefault(name, []).append(value)
        if step.mode == "train":
            if self._last is None and self._trees is not None:
                # XGBoost tells the number of trees after the first round.
                self._fresh = self._trees <= groups_of(step)
            self._last = step
        return None

    def at_end(self) -> Finding | None:
        """Return the finding about an ensemble whose trees move nothing."""
        if self._last is None or self._rate is None or not self._fresh:
            return None
        rounds = self._last.step + 1
        moved = 1 - (1 - self._rate) ** rounds
        short = self.expected_steps is not None and rounds < _WHOLE * self.expected_steps
        if rounds < self.rounds or moved >= self.reach or short or not self._falls():
            return None
        name, values = next(iter(self._train.items()))
        rate = min(0.3, _USUAL / rounds)
        return self.found(
            self._last,
            since=0,
            tensor=name,
            statistic="shrinkage",
            value=moved,
            threshold=self.reach,
            confidence=0.9,
            seen=f"{rounds} rounds with a learning rate of {self._rate:g} move a prediction by at "
            f"most {moved:.2g} of a full step; {name} was {values[0]:.4g} in the first round, and "
            f"is {values[-1]:.4g} and still falling as fast",
            cause="the learning rate is too low for this number of rounds: the trees find splits, "
            "but contribute hardly anything",
            remedy=f"use a learning rate (eta) of {rate:.1g}, or about "
            f"{_USUAL / self._rate:.1g} rounds with early stopping",
            evidence={"rounds": rounds, "learning_rate": self._rate},
        )

    def _falls(self) -> bool:
        """Return whether all losses fall steadily, those of the training by little."""
        every = [*self._train.values(), *self._eval.values()]
        fall = [values[0] - values[-1] <= self.drop * abs(values[0]) for values in every]
        return bool(self._train) and all(fall) and all(map(_steadily, every))


def _steadily(values: list[float]) -> bool:
    """Return whether a loss falls at its end by as much as at its start."""
    third = len(values) // 3
    if third < 1:
        return False
    early, late = values[0] - values[third], values[-1 - third] - values[-1]
    return early > 0 and late >= _STEADY * early and values[-1] == min(values)
