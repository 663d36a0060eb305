"""CMA-ES whose state is computed from the trials of a study."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import cmaes
import numpy as np
import optuna
from numpy.typing import NDArray
from optuna.distributions import BaseDistribution, FloatDistribution, IntDistribution
from optuna.samplers import BaseSampler, RandomSampler
from optuna.search_space import intersection_search_space
from optuna.study import StudyDirection
from optuna.trial import FrozenTrial, TrialState

# A trial's generation and what was proposed for it, as system attributes.
_GENERATION, _PROPOSED = "cma:generation", "cma:proposed"


class CmaEsSampler(BaseSampler):
    """CMA-ES (Hansen, arXiv 1604.00772) on the numbers of the space that every trial has.

    Optuna's sampler of this name saves its optimizer in the study as a pickle, which would run
    whatever code the journal of a stranger holds. This one tells a new optimizer the finished
    trials of each generation, in the order in which they finished. Trials whose numbers were not
    its own proposal, such as points given by the user, do not count.

    Args:
        seed: random seed.
        startup: number of trials that finish before it proposes; until then, and for choices and
            parameters with a condition, values are random.
    """

    def __init__(self, seed: int, startup: int) -> None:
        self._seed = seed
        self._startup = startup
        self._asked = 0
        self._random = RandomSampler(seed=seed)

    def infer_relative_search_space(
        self,
        study: optuna.Study,
        trial: FrozenTrial,  # noqa: ARG002 (Optuna's interface)
    ) -> dict[str, BaseDistribution]:
        """Return the numbers that all finished trials have; see `optuna.samplers.BaseSampler`."""
        common = intersection_search_space(study.get_trials(deepcopy=False))
        numbers = (FloatDistribution, IntDistribution)
        return {
            name: one
            for name, one in common.items()
            if isinstance(one, numbers) and not one.single()
        }

    def sample_relative(
        self, study: optuna.Study, trial: FrozenTrial, search_space: dict[str, BaseDistribution]
    ) -> dict[str, Any]:
        """Propose values of several parameters; see `optuna.samplers.BaseSampler`."""
        finished = study.get_trials(deepcopy=False, states=(TrialState.COMPLETE,))
        if not search_space or len(finished) < self._startup:
            return {}
        finished.sort(key=lambda one: (one.datetime_complete, one.number))
        axes = {name: _Axis(one) for name, one in search_space.items()}
        optimizer = self._optimizer(finished, axes, study.direction)
        proposed = {
            name: axis.value(place)
            for (name, axis), place in zip(axes.items(), optimizer.ask(), strict=True)
        }
        storage = study._storage
        storage.set_trial_system_attr(trial._trial_id, _GENERATION, optimizer.generation)
        storage.set_trial_system_attr(trial._trial_id, _PROPOSED, proposed)
        return proposed

    def sample_independent(
        self,
        study: optuna.Study,
        trial: FrozenTrial,
        param_name: str,
        param_distribution: BaseDistribution,
    ) -> Any:
        """Return a random value; see `optuna.samplers.BaseSampler`."""
        return self._random.sample_independent(study, trial, param_name, param_distribution)

    def _optimizer(
        self, finished: list[FrozenTrial], axes: Mapping[str, _Axis], direction: StudyDirection
    ) -> cmaes.CMA:
        """Return an optimizer that was told of all complete generations."""
        sign = -1 if direction is StudyDirection.MAXIMIZE else 1
        generations: dict[int, list[tuple[NDArray[np.float64], float]]] = {}
        for one in finished:
            proposed = one.system_attrs.get(_PROPOSED, {})
            if proposed.keys() == axes.keys() and proposed.items() <= one.params.items():
                places = np.array([axis.place(proposed[name]) for name, axis in axes.items()])
                generation = generations.setdefault(one.system_attrs[_GENERATION], [])
                generation.append((places, sign * one.values[0]))
        optimizer = cmaes.CMA(
            mean=np.full(len(axes), 0.5),
            # Three standard deviations reach the ends of the ranges.
            sigma=1 / 6,
            bounds=np.array([[0.0, 1.0]] * len(axes)),
            n_max_resampling=10 * len(axes),
            # Each call proposes something else.
            seed=(self._seed + self._asked) % 2**32,
        )
        self._asked += 1
        size = optimizer.population_size
        while len(told := generations.get(optimizer.generation, [])) >= size:
            optimizer.tell(told[:size])
        return optimizer


class _Axis:
    """Maps the values of a parameter to [0, 1]; equal steps have equal shares."""

    def __init__(self, distribution: BaseDistribution) -> None:
        assert isinstance(distribution, (FloatDistribution, IntDistribution))
        self._distribution = distribution
        margin = (distribution.step or 0.0) / 2
        self._low = self._along(distribution.low - margin)
        self._high = self._along(distribution.high + margin)

    def place(self, value: float) -> float:
        return (self._along(value) - self._low) / (self._high - self._low)

    def value(self, place: float) -> float:
        """Return the value nearest to a place, an int for integers."""
        one = self._distribution
        along = self._low + float(place) * (self._high - self._low)
        value = math.exp(along) if one.log else along
        if one.step:
            value = one.low + round((value - one.low) / one.step) * one.step
        value = min(max(value, one.low), one.high)
        return int(value) if isinstance(one, IntDistribution) else value

    def _along(self, value: float) -> float:
        return math.log(value) if self._distribution.log else value
