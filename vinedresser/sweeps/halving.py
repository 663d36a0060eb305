"""Asynchronous successive halving whose decisions take as long at trial 10,000 as at trial 10."""

from __future__ import annotations

from bisect import insort

import optuna
from optuna.pruners import BasePruner
from optuna.study import StudyDirection
from optuna.trial import FrozenTrial

# Optuna's name for the value of a trial at a rung.
_RUNG = "completed_rung_{}"


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
