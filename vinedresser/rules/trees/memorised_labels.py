"""Rule: boosting memorises labels that its features say nothing about."""

from __future__ import annotations

import math
from typing import NamedTuple

from vinedresser.rules.advice import Advice
from vinedresser.rules.applicability import TREES_ONLY
from vinedresser.rules.base import OnceRule
from vinedresser.rules.bounds import require_at_least, require_between
from vinedresser.rules.faults import Fault
from vinedresser.rules.need import Need
from vinedresser.rules.signals.bounded import finite_scalars
from vinedresser.rules.signals.outcomes.guessing import Guessing
from vinedresser.rules.trees.ensemble import Ensemble, groups_of, tree_sizes
from vinedresser.rules.trees.importances import Importances
from vinedresser.store.finding import Finding
from vinedresser.store.reading.step import Step
from vinedresser.store.records import RunRecord

# Losses whose value at guessing does not depend on which rows are evaluated: XGBoost's and
# scikit-learn's names.
_CROSS_ENTROPIES = ("logloss", "mlogloss", "log_loss")
# Losses of numbers. That of guessing is not known, but the first round is close to it.
_OF_NUMBERS = ("rmse", "rmsle", "mae", "mape", "mphe", "quantile", "mse")
_SURE = 2.0
# Largest learning rate at which the first rounds learn a real relation before they memorise.
_CAUTIOUS = 0.3
# Share of its first value by which an evaluation loss improves if anything was learned.
_BETTER = 0.01
# Share of the loss of guessing by which evaluations end above it.
_ABOVE = 0.03
# Minimum number of evaluations of numbers, and share of the first training loss that must be gone.
_ROUNDS, _GONE = 30, 0.1
# Share of the gain of one feature, of this many or more, that labels which no feature tells about
# do not give to any.
_ALONE, _FEATURES = 0.8, 3

_SPLIT = (
    "evaluate on rows split off the training rows: if that loss falls below guessing, compare how "
    "the labels of both sets are made"
)


_WRONG = Advice(
    "the trees memorise the training rows: the labels do not belong to the rows, or the features "
    "say too little about them for so few rows",
    "inspect some rows and their labels, and the code that joins or shuffles them; " + _SPLIT,
)


class _Evaluated(NamedTuple):
    """Evaluations of one loss.

    Attributes:
        first: value after the first round.
        lowest: smallest value.
        latest: last value.
        rounds: number of evaluations.
    """

    first: float
    lowest: float
    latest: float
    rounds: int

    @property
    def improved(self) -> bool:
        """Whether any value was below the first one by 1 %."""
        return self.lowest < (1 - _BETTER) * self.first

    def then(self, value: float) -> _Evaluated:
        """Return these evaluations and one more."""
        return _Evaluated(self.first, min(self.lowest, value), value, self.rounds + 1)


class MemorisedLabels(OnceRule):
    """The training loss falls, but no evaluation was ever better than guessing.

    Fires after ``rounds`` rounds if a training loss is below that of guessing by ``gain``, while
    each evaluation loss is above guessing by 3 % now, was not below it after any round, and
    has never improved on its first value by 1 %. A booster that overfits late was better than
    guessing before. Applies to cross-entropies: that of guessing is the entropy of the captured
    labels (plus two standard errors), or else ln K for K classes, which is never lower.

    Of losses of numbers, that of guessing is not known. With a learning rate of at most 0.3, the
    first evaluation is close to it: fires after 30 rounds if the training loss has fallen by a
    tenth while no evaluation has improved on its first value by 1 %, and none is below it now.

    With a learning rate of at most 0.3, the first trees hardly memorise: a clear relation would
    show in the first evaluations, so the labels are wrong, or the features say too little about
    them for this number of rows. Larger rates may hide a relation: the finding is then about
    overfitting. It is about leakage if a single feature of three or more has 80 % of the gain: it
    tells the labels of the training rows only.

    Sources: Zhang et al., "Understanding deep learning requires rethinking generalization" (2017);
    Friedman, "Greedy function approximation" (Ann. Stat. 29, 2001, section 5) for the rate.

    Args:
        gain: share of the loss of guessing that the training must have removed.
        rounds: minimum number of evaluations.
    """

    severity = "warning"
    fault = "corrupt_labels"
    position = 540
    inapplicable = TREES_ONLY
    modes = ("train", "eval")

    def __init__(self, gain: float = 0.2, rounds: int = 10) -> None:
        require_between(0, 1, gain=gain)
        require_at_least(2, rounds=rounds)
        self.gain = gain
        self.rounds = rounds
        self.needs = (
            Need("losses", modes=("train", "eval"), required=False),
            tree_sizes(10),
        )
        self.guessing = Guessing()
        self.importances = Importances()
        self._rate = math.inf
        self._classes = 0
        # Number of captured rows, from which the loss of guessing is estimated.
        self._rows = 1
        self._evaluated: dict[str, _Evaluated] = {}
        # First training losses.
        self._first: dict[str, float] = {}

    def begin(self, info: RunRecord) -> None:
        """Read the learning rate of the ensemble."""
        rate = Ensemble(info).shrinkage
        self._done = rate is None
        self._rate = rate or 0.0

    def watch(self, step: Step) -> Finding | None:
        """See `OnceRule.watch`."""
        losses = finite_scalars(step.scalars_of("losses"))
        if step.mode == "eval":
            for name, value in losses.items():
                before = self._evaluated.get(name)
                self._evaluated[name] = (
                    before.then(value) if before else _Evaluated(value, value, value, 1)
                )
            return None
        self._classes = max(self._classes, groups_of(step))
        captured = self.guessing.batches.compared
        self._rows = max([self._rows, *(len(one.labels) for one in captured)])
        for name, value in losses.items():
            guessed = self._guessed(name)
            if guessed and value < (1 - self.gain) * guessed and self._never_better(name, guessed):
                return self._finding(step, name, value, guessed)
            first = self._first.setdefault(name, value)
            if value < (1 - _GONE) * first and self._never_improved(name):
                return self._finding(step, name, value, None)
        return None

    def _guessed(self, name: str) -> float | None:
        """Return an upper bound of the cross-entropy of guessing; None for other losses."""
        if _kind(name) not in _CROSS_ENTROPIES:
            return None
        classes = max(self._classes, 2)
        equal = math.log(classes)
        losses = self.guessing.fit.of("train")
        loss = next(iter(losses)) if len(losses) == 1 else ""
        known = self.guessing.loss(loss) if loss else None
        if known is not None:
            # The entropy of n rows is lower than that of all by (K - 1) / 2n (Miller, 1955).
            bias = (classes - 1) / (2 * self._rows)
            error = self.guessing.deviation(loss) / math.sqrt(self._rows)
            equal = min(equal, known + bias + _SURE * error)
        return equal

    def _same(self, name: str) -> dict[str, _Evaluated]:
        """Return the evaluations of a loss, by data set."""
        return {other: one for other, one in self._evaluated.items() if _kind(other) == _kind(name)}

    def _never_improved(self, name: str) -> bool:
        """Return whether all evaluations of a loss of numbers were no better than the first."""
        if _kind(name) not in _OF_NUMBERS or self._rate > _CAUTIOUS:
            return False
        found = self._same(name).values()
        return bool(found) and all(
            one.rounds >= _ROUNDS and not one.improved and one.latest >= one.first for one in found
        )

    def _never_better(self, name: str, guessed: float) -> bool:
        """Return whether all evaluations of a loss were no better than guessing."""
        found = self._same(name).values()
        return bool(found) and all(
            one.rounds >= self.rounds
            and one.lowest >= guessed
            and not one.improved
            and one.latest > (1 + _ABOVE) * guessed
            for one in found
        )

    def _finding(self, step: Step, name: str, value: float, guessed: float | None) -> Finding:
        other, one = next(iter(self._same(name).items()))
        advice, fault = self._blamed()
        return self.found(
            step,
            since=0,
            tensor=other,
            statistic="loss",
            value=one.latest,
            threshold=one.first if guessed is None else guessed,
            confidence=0.6 if fault == "overfitting" else 0.7,
            seen=f"{name} fell to {value:.4g}, but {other} was never below {one.lowest:.4g} in "
            f"{one.rounds} rounds and is {one.latest:.4g} "
            + (f"(first: {one.first:.4g})" if guessed is None else f"(guessing: {guessed:.4g})"),
            cause=advice.cause,
            remedy=advice.remedy,
            evidence={"guessing": guessed, "train_loss": value, "learning_rate": self._rate},
            fault=fault,
        )

    def _blamed(self) -> tuple[Advice, Fault]:
        """Return the likely cause of the memorising."""
        shares = self.importances.shares
        if len(shares) >= _FEATURES and float(shares.max()) > _ALONE:
            feature = self.importances.feature(int(shares.argmax()))
            return Advice(
                f"{feature} contributes {float(shares.max()):.0%} of the gain, and tells the "
                "labels of the training rows only: it is made from them, or means something else "
                "in the evaluated rows",
                f"check where {feature} comes from and whether it is known at prediction time; "
                "train without it",
            ), "data_leakage"
        if self._rate <= _CAUTIOUS:
            return _WRONG, "corrupt_labels"
        return Advice(
            f"a learning rate of {self._rate:g} memorises the training rows at once; or the "
            "labels do not belong to the rows",
            "train again with a learning rate of 0.1 and max_depth 3: if no evaluation is below "
            f"guessing then, the labels are wrong; {_SPLIT}",
        ), "overfitting"


def _kind(name: str) -> str:
    """Return the name of a loss without its data set, which XGBoost puts before it."""
    return name.removeprefix("losses/").rpartition("-")[2]
