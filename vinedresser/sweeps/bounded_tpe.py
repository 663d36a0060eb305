"""Optuna's TPE sampler over a bounded number of trials, so that a proposal takes constant time."""

from __future__ import annotations

import heapq
from collections.abc import Sequence
from typing import Any

import optuna
from optuna.distributions import BaseDistribution
from optuna.samplers import TPESampler
from optuna.study import StudyDirection
from optuna.trial import FrozenTrial, TrialState

# Above this number of trials, the sampler sees the best and the newest ones.
_MOST = 1000
# TPE models its good configurations on at most this number of trials (Optuna's `default_gamma`).
_BEST = 25


class BoundedTPESampler(TPESampler):
    """TPE that models the best 25 trials and the newest others, at most 1,000 in all.

    Up to 1,000 trials it proposes the same as `optuna.samplers.TPESampler`, whose time for a
    proposal grows with the number of trials. Beyond, the model of the good configurations is the
    same; that of the others leaves out the oldest trials, to which TPE gives the least weight.
    """

    def _sample(
        self, study: optuna.Study, trial: FrozenTrial, search_space: dict[str, BaseDistribution]
    ) -> dict[str, Any]:
        # A view of the study, not a study: only what the sampler reads.
        return super()._sample(_BoundedStudy(study), trial, search_space)  # type: ignore[arg-type]


class _BoundedStudy:
    """A study that returns a bounded number of trials.

    Args:
        study: the study.
    """

    def __init__(self, study: optuna.Study) -> None:
        self._study = study

    def __getattr__(self, name: str) -> Any:
        return getattr(self._study, name)

    def _get_trials(self, *arguments: Any, **options: Any) -> list[FrozenTrial]:
        trials = self._study._get_trials(*arguments, **options)
        return _bounded(trials, self._study.directions)


def _bounded(trials: list[FrozenTrial], directions: Sequence[StudyDirection]) -> list[FrozenTrial]:
    """Return the best trials of each objective and the newest others, in their order."""
    if len(trials) <= _MOST:
        return trials
    finished = [one for one in trials if one.state is TrialState.COMPLETE]
    kept: dict[int, FrozenTrial] = {}
    for objective, direction in enumerate(directions):
        sign = -1 if direction is StudyDirection.MAXIMIZE else 1
        best = heapq.nsmallest(_BEST, finished, key=lambda one: sign * one.values[objective])
        kept |= {one.number: one for one in best}
    for one in reversed(trials):
        if len(kept) >= _MOST:
            break
        kept[one.number] = one
    return [kept[number] for number in sorted(kept)]
