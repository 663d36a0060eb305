"""Configurations that depend only on the seed and on the trials before, and that are new."""

from __future__ import annotations

import zlib
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from typing import Any

import optuna
from optuna.distributions import (
    BaseDistribution,
    CategoricalDistribution,
    FloatDistribution,
    IntDistribution,
)
from optuna.samplers import BaseSampler, NSGAIISampler, RandomSampler
from optuna.trial import FrozenTrial

from vinedresser.sweeps.dimension import Choice
from vinedresser.sweeps.space import Space
from vinedresser.sweeps.tried import Tried

__all__ = ["CHOSEN", "KNOWN", "Proposer", "Suggested", "given_point"]

# User attribute of a trial: its configuration.
CHOSEN = "parameters"
# User attribute of a trial of another sweep: the name of that and its number there.
KNOWN = "known_from"
# Optuna's system attribute of a trial that was queued: the values that are given.
_GIVEN = "fixed_params"
# Where its samplers note a proposal for a trial that is running.
_RELATIVE = "relative_params:0"
# Proposals of the sampler and random ones until one is new.
_PROPOSALS, _RANDOM = 20, 200


def given_point(trial: FrozenTrial) -> dict[str, Choice]:
    """Return the values that were given when a trial was queued; {} for none."""
    given: dict[str, Choice] = trial.system_attrs.get(_GIVEN, {})
    return given


class Proposer(BaseSampler):
    """Proposes whole configurations with another sampler, a new one for each trial.

    The sampler of a trial is seeded by its number. So a process that resumes a study proposes what
    the first one would have, even if that was killed while a trial began.

    Args:
        make: returns the sampler with a seed.
        seed: seed of the sweep.
    """

    def __init__(
        self, make: Callable[[int], BaseSampler], seed: int, space: Space, tried: Tried
    ) -> None:
        self._make = make
        self._sampler = make(seed)
        self._seed = seed
        self._space = space
        self._tried = tried
        self._drafts: dict[int, dict[str, Choice]] = {}

    def infer_relative_search_space(
        self,
        study: optuna.Study,  # noqa: ARG002 (Optuna's interface)
        trial: FrozenTrial,  # noqa: ARG002
    ) -> dict[str, BaseDistribution]:
        """Return nothing: all parameters are sampled together with the first of them."""
        return {}

    def sample_relative(
        self,
        study: optuna.Study,
        trial: FrozenTrial,
        search_space: dict[str, BaseDistribution],  # noqa: ARG002
    ) -> dict[str, Any]:
        """Return nothing; see `infer_relative_search_space`."""
        if isinstance(self._sampler, NSGAIISampler):
            # Also that of a trial whose configuration is given, which is a member of it.
            self._sampler.get_trial_generation(study, trial)
        return {}

    def sample_independent(
        self,
        study: optuna.Study,
        trial: FrozenTrial,
        param_name: str,
        param_distribution: BaseDistribution,  # noqa: ARG002
    ) -> Any:
        """Return the value of a parameter in the configuration of a trial."""
        if trial.number not in self._drafts:
            self._drafts = {trial.number: trial.user_attrs.get(CHOSEN) or self._draft(study, trial)}
        return self._drafts[trial.number][param_name]

    def _draft(self, study: optuna.Study, trial: FrozenTrial) -> dict[str, Choice]:
        """Return a configuration for a trial, and note it before its first value is used."""
        # A trial that an older version began may have some values.
        fixed = {**given_point(trial), **trial.params}
        seed = zlib.crc32(f"{self._seed} {trial.number}".encode())
        found = self._new(study, trial, fixed, seed)
        study._storage.set_trial_user_attr(trial._trial_id, CHOSEN, found)
        return found

    def _new(
        self, study: optuna.Study, trial: FrozenTrial, fixed: Mapping[str, Choice], seed: int
    ) -> dict[str, Choice]:
        """Return a configuration that was not tried, if there is one."""
        if _RELATIVE in trial.system_attrs:
            # Of a process that was killed; samplers would take it for another trial.
            study._storage.set_trial_system_attr(trial._trial_id, _RELATIVE, "")
        sampler = self._make(seed)
        for _ in range(_PROPOSALS):
            numbers = sampler.infer_relative_search_space(study, trial)
            relative = sampler.sample_relative(study, trial, numbers)
            found = self._space.suggest(_Values(sampler, study, trial, {**relative, **fixed}))
            if found not in self._tried:
                return found
        chance = RandomSampler(seed=seed)
        for _ in range(_RANDOM):
            found = self._space.suggest(_Values(chance, study, trial, fixed))
            if found not in self._tried:
                return found
        return self._tried.another(fixed) or found


class Suggested(ABC):
    """Proposes values whose distributions it gets as Optuna's; see `Suggester`."""

    def suggest_float(
        self, name: str, low: float, high: float, *, step: float | None = None, log: bool = False
    ) -> float:
        """See `Suggester.suggest_float`."""
        return float(self._value(name, FloatDistribution(low, high, log, step)))

    def suggest_int(
        self, name: str, low: int, high: int, *, step: int = 1, log: bool = False
    ) -> int:
        """See `Suggester.suggest_int`."""
        return int(self._value(name, IntDistribution(low, high, log, step)))

    def suggest_categorical(self, name: str, choices: tuple[Choice, ...]) -> Any:
        """See `Suggester.suggest_categorical`."""
        return self._value(name, CategoricalDistribution(choices))

    @abstractmethod
    def _value(self, name: str, distribution: BaseDistribution) -> Any:
        """Return the value of a parameter."""


class _Values(Suggested):
    """Proposes the values of one configuration without a note in the study.

    Args:
        sampler: proposes values that are not given.
        trial: the trial that gets the configuration.
    """

    def __init__(
        self,
        sampler: BaseSampler,
        study: optuna.Study,
        trial: FrozenTrial,
        given: Mapping[str, Choice],
    ) -> None:
        self._sampler = sampler
        self._study = study
        self._trial = trial
        self._given = given

    def _value(self, name: str, distribution: BaseDistribution) -> Any:
        if name in self._given:
            return self._given[name]
        return self._sampler.sample_independent(self._study, self._trial, name, distribution)
