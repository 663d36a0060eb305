"""Optuna's pruners by their names in a sweep file."""

from __future__ import annotations

import warnings
from bisect import insort
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar

import optuna
from annotated_types import Ge, Gt, Lt
from optuna import pruners
from optuna.exceptions import ExperimentalWarning
from optuna.pruners import BasePruner
from optuna.study import StudyDirection
from optuna.trial import FrozenTrial, TrialState

from vinedresser.infra.configuration import build
from vinedresser.sweeps.proposer import KNOWN

__all__ = ["ENDING", "Pruner", "RungPruner", "make_pruner"]

# User attribute of a trial in Optuna: how it ended, as the fields of a `TrialEnd`.
ENDING = "ending"

# Optuna's name for the value of a trial at a rung.
_RUNG = "completed_rung_{}"


@dataclass(frozen=True)
class Pruner:
    """A pruner that ends no trial, and the base class of those that do.

    Attributes:
        name: its name in the sweep file.
        comparing: whether trials that a rule suspects are compared with others.
    """

    comparing: ClassVar[bool] = False

    name: str

    def make(self) -> pruners.BasePruner:
        """Return Optuna's pruner."""
        return pruners.NopPruner()

    def compares(self, epoch: int) -> bool:  # noqa: ARG002 (subclasses use it)
        """Return whether a trial that a rule suspects is compared at an epoch (from 1)."""
        return False

    def why(self, epoch: int) -> str:
        """Return why a trial was ended at an epoch (from 1), as a clause."""
        return f"pruned at epoch {epoch}"


@dataclass(frozen=True)
class _Median(Pruner):
    """Ends trials worse than the median of the others at the same epoch (Golovin et al., 2017).

    Attributes:
        startup: number of trials that must finish or be stopped before any is ended.
        grace: minimum number of epochs per trial.
    """

    comparing: ClassVar[bool] = True

    startup: Annotated[int, Ge(0)] = 5
    grace: Annotated[int, Ge(0)] = 1

    def make(self) -> pruners.BasePruner:
        """See `Pruner.make`."""
        return _MedianPruner(self.startup, self.grace)

    def compares(self, epoch: int) -> bool:
        """See `Pruner.compares`."""
        return epoch > self.grace

    def why(self, epoch: int) -> str:
        """See `Pruner.why`."""
        return f"worse at epoch {epoch} than the median of the other trials"


class _MedianPruner(pruners.MedianPruner):
    """Optuna's, to which trials that were stopped are evidence like finished ones.

    They count up to their last epoch with what they had reported. Without them, a space in which
    most trials are stopped would have few trials to compare with, and late.
    """

    def prune(self, study: optuna.Study, trial: FrozenTrial) -> bool:
        """Return whether a trial ends; see `optuna.pruners.BasePruner`."""
        # A view of the study, not a study: only what the pruner reads.
        view: Any = _Ended(study)
        return super().prune(view, trial)


class _Ended:
    """A study whose finished trials include those that were stopped, but none of another sweep."""

    def __init__(self, study: optuna.Study) -> None:
        self._study = study
        self.direction = study.direction

    def get_trials(
        self,
        deepcopy: bool,
        states: tuple[TrialState, ...],  # noqa: ARG002 (Optuna's interface)
    ) -> list[FrozenTrial]:
        ended = self._study.get_trials(deepcopy, (TrialState.COMPLETE, TrialState.PRUNED))
        return [
            one
            for one in ended
            if (one.state is TrialState.COMPLETE and KNOWN not in one.user_attrs)
            or one.user_attrs.get(ENDING, {}).get("state") == "stopped"
        ]


@dataclass(frozen=True)
class _Halving(Pruner):
    """Continues the best 1 / eta of the trials at each rung (ASHA: Li et al., arXiv 1810.05934).

    Attributes:
        eta: reduction factor: one of eta trials continues at a rung.
        grace: epochs to the first rung; the others are at grace * eta, grace * eta^2 and so on.
    """

    comparing: ClassVar[bool] = True

    eta: Annotated[int, Ge(2)] = 3
    grace: Annotated[int, Ge(1)] = 1

    def make(self) -> pruners.BasePruner:
        """See `Pruner.make`."""
        return RungPruner(self.grace, self.eta)

    def compares(self, epoch: int) -> bool:
        """See `Pruner.compares`: from the first rung on, also between rungs."""
        return epoch >= self.grace

    def why(self, epoch: int) -> str:
        """See `Pruner.why`."""
        return f"at epoch {epoch} not the best of {self.eta} trials, of which one goes on"


@dataclass(frozen=True)
class _Hyperband(_Halving):
    """Successive halving with several grace periods (Hyperband: Li et al., JMLR 2018).

    Attributes:
        epochs: number of metric values that a complete trial reports.
    """

    epochs: int = 1

    def make(self) -> pruners.BasePruner:
        """See `Pruner.make`."""
        made = pruners.HyperbandPruner(self.grace, self.epochs, self.eta)
        # Otherwise its brackets are unknown until a process prunes: its first proposals would
        # depend on the trials of all. With the number of epochs it reads nothing from the study.
        study: Any = None
        made._try_initialization(study)
        return made


@dataclass(frozen=True)
class _Wilcoxon(Pruner):
    """Ends trials worse than the best one, fold by fold (Wilcoxon signed-rank test).

    Attributes:
        p: p-value below which a difference is significant.
        startup: minimum number of folds per trial.
    """

    p: Annotated[float, Gt(0), Lt(1)] = 0.1
    startup: Annotated[int, Ge(0)] = 2

    def make(self) -> pruners.BasePruner:
        """See `Pruner.make`."""
        with warnings.catch_warnings():
            # Marked as experimental since 2024, but unchanged.
            warnings.simplefilter("ignore", ExperimentalWarning)
            return _WilcoxonPruner(p_threshold=self.p, n_startup_steps=self.startup)

    def why(self, epoch: int) -> str:
        """See `Pruner.why`."""
        return f"worse than the best trial over {epoch} folds (p < {self.p:g})"


class _WilcoxonPruner(pruners.WilcoxonPruner):
    """Optuna's, which compares with the best trial of this sweep, not of an earlier one."""

    def prune(self, study: optuna.Study, trial: FrozenTrial) -> bool:
        """Return whether a trial ends; see `optuna.pruners.BasePruner`."""
        view: Any = _Own(study)
        return super().prune(view, trial)


class _Own:
    """A study whose best trial is of this sweep."""

    def __init__(self, study: optuna.Study) -> None:
        self._study = study
        self.direction = study.direction

    @property
    def best_trial(self) -> FrozenTrial:
        """The best finished trial that breaks no constraint.

        Raises:
            ValueError: there is none.
        """
        best = self._study.best_trial
        if KNOWN not in best.user_attrs:
            return best
        finished = self._study.get_trials(deepcopy=False, states=(TrialState.COMPLETE,))
        own = [
            one
            for one in finished
            if KNOWN not in one.user_attrs and max(one.constraints.values(), default=0.0) <= 0
        ]
        better = max if self.direction is StudyDirection.MAXIMIZE else min
        return better(own, key=lambda one: one.values[0])


_PRUNERS: dict[str, type[Pruner]] = {
    "none": Pruner,
    "median": _Median,
    "asha": _Halving,
    "hyperband": _Hyperband,
    "wilcoxon": _Wilcoxon,
}


def make_pruner(given: str | Mapping[str, Any], epochs: int | None, where: str) -> Pruner:
    """Return a pruner.

    Args:
        given: its name, or a table with ``name`` and settings.
        epochs: number of metric values that a complete trial reports, if known.
        where: prefix of messages.

    Raises:
        ConfigError: an unknown or invalid setting.
    """
    table = {"name": given} if isinstance(given, str) else dict(given)
    kind = _PRUNERS[str(table["name"])]
    if kind is _Hyperband:
        table = {"epochs": epochs, **table}
    return build(kind, table, where)


class RungPruner(BasePruner):
    """ASHA (Li et al., arXiv 1810.05934), with the decisions of Optuna's `SuccessiveHalvingPruner`.

    Optuna's looks through all trials at each decision; this one keeps the values at each rung.

    Args:
        grace: step of the first rung; the others are at grace * eta, grace * eta^2 and so on.
        eta: reduction factor: one of eta trials continues at a rung.
    """

    def __init__(self, grace: int, eta: int) -> None:
        self._grace = grace
        self._eta = eta
        # By rung, in ascending order; read from the study when a trial reaches the rung.
        self._values: dict[int, list[float]] = {}

    def prune(self, study: optuna.Study, trial: FrozenTrial) -> bool:
        """Return whether a trial ends; see `optuna.pruners.BasePruner`.

        The decision on a step is the same if a process was killed before it was used.
        """
        step = trial.last_step
        if step is None:
            return False
        before = max(
            (reported for reported in trial.intermediate_values if reported < step),
            default=0,
        )
        rung = 0
        while (reached := self._grace * self._eta**rung) <= step:
            value = trial.intermediate_values[step]
            if before < reached and not self._is_promoted(study, trial, rung, value):
                return True
            rung += 1
        return False

    def _is_promoted(
        self, study: optuna.Study, trial: FrozenTrial, rung: int, value: float
    ) -> bool:
        """Add a trial to a rung, and return whether it is among the best there."""
        key = _RUNG.format(rung)
        if rung not in self._values:
            others = study.get_trials(deepcopy=False)
            known = (other.system_attrs[key] for other in others if key in other.system_attrs)
            self._values[rung] = sorted(known)
        values = self._values[rung]
        if key not in trial.system_attrs:
            study._storage.set_trial_system_attr(trial._trial_id, key, value)
            insort(values, value)
        # Of the first eta - 1 trials, the best one so far continues.
        best = max(len(values) // self._eta, 1)
        if study.direction is StudyDirection.MAXIMIZE:
            return value >= values[-best]
        return value <= values[best - 1]
