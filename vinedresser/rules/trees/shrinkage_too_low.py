"""Rule: the steps of boosted trees are far too small for the number of rounds."""

from __future__ import annotations

from typing import NamedTuple

from vinedresser.rules.applicability import TREES_ONLY
from vinedresser.rules.base import OnceRule
from vinedresser.rules.bounds import require_at_least, require_between
from vinedresser.rules.faults import Fault
from vinedresser.rules.need import Need
from vinedresser.rules.signals.bounded import finite_scalars
from vinedresser.rules.trees.ensemble import Ensemble, tree_sizes
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
_COVER = "trees/cover"
# Objectives whose predictions are logarithms or logits: a move by 1 is a factor of 2.7.
_LOGARITHMS = ("count:poisson", "reg:gamma", "reg:tweedie", "reg:logistic", "binary:", "multi:")


class _Held(NamedTuple):
    """What holds the trees back.

    Attributes:
        moved: share of a full step, or distance, by which all rounds can move a prediction.
        words: what moves a prediction by that, in words.
    """

    moved: float
    words: str
    fault: Fault
    cause: str
    remedy: str


class ShrinkageTooLow(OnceRule):
    """Boosting ended although its trees, all together, could hardly move a prediction.

    A tree contributes its learning rate r of a full step, so N rounds move a prediction by at most
    the share 1 - (1 - r)^N of the way (Friedman, "Greedy function approximation", Ann. Stat. 29,
    2001, section 5). A penalty L of the squared leaf values (XGBoost's lambda) reduces each step
    further, to the share H/(H + L) at most, with H the sum of the second derivatives of all rows,
    the cover of the root (Chen and Guestrin, "XGBoost", KDD 2016, eq. 5). A limit d of leaf values
    (max_delta_step) allows N r d at most, which is compared if predictions are logarithms or
    logits.

    Fires at the end of the run if any of these is below ``reach``, no training loss
    has fallen by ``drop`` of its first value, and all losses still fall steadily: more rounds or a
    higher rate would have helped. It is therefore silent if an evaluation loss does not fall (early
    stopping, data without signal), if trees have no splits, if the ensemble continues an earlier
    one, and if a run of known length was cut short. The fault is `over_regularisation` if the
    penalty is the cause.

    Args:
        reach: share of a full step that all rounds together must be able to move a prediction.
        drop: fall of the training loss that counts as learning, as a share of its first value.
        rounds: minimum number of rounds.
    """

    severity = "warning"
    fault = "learning_rate_too_low"
    position = 520
    inapplicable = TREES_ONLY
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
        self._ensemble: Ensemble | None = None
        self._logarithms = False
        self._fresh = False
        # Largest cover of a root; 0 if unknown.
        self._cover = 0.0
        self._last: Step | None = None
        # Values of each loss by round, in training and in evaluations.
        self._train: dict[str, list[float]] = {}
        self._eval: dict[str, list[float]] = {}

    def begin(self, info: RunRecord) -> None:
        """Read the parameters of the ensemble."""
        self._ensemble = Ensemble(info)
        kinds = [str(loss.get("type", "")) for loss in info.losses.values()]
        self._logarithms = bool(kinds) and all(kind.startswith(_LOGARITHMS) for kind in kinds)
        rate = self._ensemble.shrinkage
        self._done = rate is None or not rate > 0

    def watch(self, step: Step) -> Finding | None:
        """See `OnceRule.watch`."""
        series = self._train if step.mode == "train" else self._eval
        for name, value in finite_scalars(step.scalars_of("losses")).items():
            series.setdefault(name, []).append(value)
        if step.mode == "train":
            if self._last is None and self._ensemble is not None:
                self._fresh = self._ensemble.is_fresh(step)
            self._last = step
            if _COVER in step.tensors_of("trees"):
                self._cover = max(self._cover, float(step.tensor(_COVER).max()))
        return None

    def at_end(self) -> Finding | None:
        """Return the finding about an ensemble whose trees move nothing."""
        if self._last is None or self._ensemble is None or not self._fresh:
            return None
        rounds = self._last.step + 1
        short = self.expected_steps is not None and rounds < _WHOLE * self.expected_steps
        if rounds < self.rounds or short or not self._falls():
            return None
        held = next((limit for limit in self._limits(rounds) if limit.moved < self.reach), None)
        if held is None:
            return None
        name, values = next(iter(self._train.items()))
        return self.found(
            self._last,
            since=0,
            tensor=name,
            statistic="shrinkage",
            value=held.moved,
            threshold=self.reach,
            confidence=0.9,
            seen=f"{held.words}; {name} was {values[0]:.4g} in the first round, and "
            f"is {values[-1]:.4g} and still falling as fast",
            cause=f"{held.cause}: the trees find splits, but contribute hardly anything",
            remedy=held.remedy,
            fault=held.fault,
            evidence={"rounds": rounds, "learning_rate": self._ensemble.shrinkage},
        )

    def _limits(self, rounds: int) -> list[_Held]:
        """Return what limits the predictions after some rounds."""
        ensemble = self._ensemble
        rate = ensemble.shrinkage if ensemble else None
        if ensemble is None or rate is None:
            return []
        found = [_by_rate(rate, rounds)]
        penalty = ensemble.number("lambda", "reg_lambda")
        if penalty is not None and penalty > 0 and self._cover > 0:
            found.append(_by_penalty(rate, rounds, penalty, self._cover))
        limit = ensemble.number("max_delta_step")
        if limit is not None and limit > 0 and self._logarithms:
            found.append(_by_limit(rate, rounds, limit))
        return found

    def _falls(self) -> bool:
        """Return whether all losses fall steadily, those of the training by little."""
        every = [*self._train.values(), *self._eval.values()]
        fall = [values[0] - values[-1] <= self.drop * abs(values[0]) for values in every]
        return bool(self._train) and all(fall) and all(map(_steadily, every))


def _by_rate(rate: float, rounds: int) -> _Held:
    moved = 1 - (1 - min(rate, 1.0)) ** rounds
    return _Held(
        moved,
        f"{rounds} rounds with a learning rate of {rate:g} move a prediction by at most "
        f"{moved:.2g} of a full step",
        "learning_rate_too_low",
        "the learning rate is too low for this number of rounds",
        f"use a learning rate (eta) of {min(0.3, _USUAL / rounds):.1g}, or about "
        f"{_USUAL / rate:.1g} rounds with early stopping",
    )


def _by_penalty(rate: float, rounds: int, penalty: float, cover: float) -> _Held:
    share = cover / (cover + penalty)
    moved = 1 - (1 - min(rate, 1.0) * share) ** rounds
    return _Held(
        moved,
        f"with lambda = {penalty:g} for rows whose second derivatives sum up to {cover:.4g}, "
        f"{rounds} rounds move a prediction by at most {moved:.2g} of a full step",
        "over_regularisation",
        "lambda is too large: it outweighs all rows",
        f"use a lambda of 1, and at most about a hundredth of {cover:.2g}",
    )


def _by_limit(rate: float, rounds: int, limit: float) -> _Held:
    moved = rounds * min(rate, 1.0) * limit
    return _Held(
        moved,
        f"with max_delta_step = {limit:g} and a learning rate of {rate:g}, {rounds} rounds move a "
        f"logarithm or logit by at most {moved:.2g}",
        "learning_rate_too_low",
        "max_delta_step is too small for this number of rounds",
        "use a max_delta_step of 0.7 to 10, or 0 for no limit",
    )


def _steadily(values: list[float]) -> bool:
    """Return whether a loss falls at its end by as much as at its start."""
    third = len(values) // 3
    if third < 1:
        return False
    early, late = values[0] - values[third], values[-1 - third] - values[-1]
    return early > 0 and late >= _STEADY * early and values[-1] == min(values)
