"""Optuna's samplers by their names in a sweep file; TPE takes constant time for a proposal."""

from __future__ import annotations

import heapq
import importlib.util
from collections.abc import Callable, Container, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any

import optuna
from annotated_types import Ge
from optuna import samplers
from optuna.distributions import BaseDistribution
from optuna.samplers import TPESampler
from optuna.study import StudyDirection
from optuna.trial import FrozenTrial, TrialState

from vinedresser.errors import ConfigError, MissingDependency
from vinedresser.infra.configuration import build
from vinedresser.sweeps.population import PopulationSettings

__all__ = ["BoundedTPESampler", "sampler_maker"]

# Above this number of trials, the sampler sees the best and the newest ones.
_MOST = 1000
# TPE models its good configurations on at most this number of trials (Optuna's `default_gamma`).
_BEST = 25
# Packages that a sampler needs beside Optuna.
_WANTED = {"cmaes": ("cmaes",), "gp": ("torch", "scipy")}


class BoundedTPESampler(TPESampler):
    """TPE that models the best 25 trials and the newest others, at most 1,000 in all.

    Up to 1,000 trials it proposes the same as `optuna.samplers.TPESampler`, whose time for a
    proposal grows with the number of trials. Beyond, the model of the good configurations is the
    same; that of the others leaves out the oldest trials, to which TPE gives the least weight.
    """

    def infer_relative_search_space(
        self, study: optuna.Study, trial: FrozenTrial
    ) -> dict[str, BaseDistribution]:
        """Return the parameters that these trials have; see `optuna.samplers.BaseSampler`."""
        view: Any = _BoundedStudy(study)
        return super().infer_relative_search_space(view, trial)

    def sample_relative(
        self, study: optuna.Study, trial: FrozenTrial, search_space: dict[str, BaseDistribution]
    ) -> dict[str, Any]:
        """Propose values of several parameters; see `optuna.samplers.BaseSampler`."""
        # A view of the study, not a study: only what the sampler reads.
        view: Any = _BoundedStudy(study)
        return super().sample_relative(view, trial, search_space)

    def sample_independent(
        self,
        study: optuna.Study,
        trial: FrozenTrial,
        param_name: str,
        param_distribution: BaseDistribution,
    ) -> Any:
        """Propose a value of one parameter; see `optuna.samplers.BaseSampler`."""
        view: Any = _BoundedStudy(study)
        return super().sample_independent(view, trial, param_name, param_distribution)


class _BoundedStudy:
    """A study that returns a bounded number of trials."""

    def __init__(self, study: optuna.Study) -> None:
        self._study = study

    def __getattr__(self, name: str) -> Any:
        return getattr(self._study, name)

    def _get_trials(
        self,
        deepcopy: bool = True,
        states: Container[TrialState] | None = None,
        use_cache: bool = False,  # noqa: ARG002 (as fast without)
    ) -> list[FrozenTrial]:
        trials = self._study.get_trials(deepcopy, states)
        if len(trials) <= _MOST:
            return trials
        finished = self._study.get_trials(deepcopy, (TrialState.COMPLETE,))
        return _bounded(trials, finished, self._study.directions)


def _bounded(
    trials: list[FrozenTrial], finished: list[FrozenTrial], directions: Sequence[StudyDirection]
) -> list[FrozenTrial]:
    """Return the best finished trials of each objective and the newest others, in their order."""
    kept: dict[int, FrozenTrial] = {}
    for objective, direction in enumerate(directions):
        sign = -1 if direction is StudyDirection.MAXIMIZE else 1
        keys = {one.number: (_violation(one), sign * one.values[objective]) for one in finished}
        best = heapq.nsmallest(_BEST, finished, key=lambda one: keys[one.number])
        kept |= {one.number: one for one in best}
    for trial in reversed(trials):
        if len(kept) >= _MOST:
            break
        kept[trial.number] = trial
    return [kept[number] for number in sorted(kept)]


def _violation(trial: FrozenTrial) -> float:
    """Return by how much a trial breaks its constraints in all, as TPE adds it up."""
    return sum(max(excess, 0.0) for excess in trial.constraints.values())


@dataclass(frozen=True)
class _Plain:
    """A sampler without settings."""

    name: str


@dataclass(frozen=True)
class _Startup:
    """A sampler that starts with random trials.

    Attributes:
        startup: number of random trials before it proposes.
    """

    name: str
    startup: Annotated[int, Ge(1)] = 10


@dataclass(frozen=True)
class _Genetic:
    """A sampler that combines the configurations of the best trials.

    Attributes:
        population: number of finished trials of a generation; those of the first one are random.
    """

    name: str
    population: Annotated[int, Ge(2)] = 50


_KINDS: dict[str, type[Any]] = {
    "random": _Plain,
    "grid": _Plain,
    "nsgaii": _Genetic,
    "pbt": PopulationSettings,
}


def sampler_maker(
    given: str | Mapping[str, Any], *, objectives: int, where: str
) -> Callable[[int], samplers.BaseSampler]:
    """Return a function that makes a sampler with a random seed.

    The points of a grid come from the sweep itself, and so does the configuration of a trial in a
    population, but for values that are drawn at random. TPE is that of Bergstra et al. (2011), with
    the constant liar for concurrent trials; the Gaussian process is Optuna's, CMA-ES is Hansen's,
    and NSGA-II that of Deb et al. (2002).

    Args:
        given: its name, or a table with ``name`` and settings.
        objectives: number of objectives.
        where: prefix of messages.

    Raises:
        ConfigError: an unknown or invalid setting, or too many objectives for the sampler.
        MissingDependency: a required package is not installed.
    """
    table = {"name": given} if isinstance(given, str) else dict(given)
    name = str(table.get("name"))
    kind = _KINDS.get(name, _Startup)
    settings = build(kind, table, where)
    for package in _WANTED.get(name, ()):
        if importlib.util.find_spec(package) is None:
            raise MissingDependency(f"{where}: {name!r} needs the package {package}")
    if name == "cmaes" and objectives > 1:
        raise ConfigError(f"{where}: CMA-ES supports one objective only; use nsgaii, tpe or gp")
    if kind in (_Plain, PopulationSettings):
        return lambda seed: samplers.RandomSampler(seed=seed)
    if kind is _Genetic:
        population = settings.population
        return lambda seed: samplers.NSGAIISampler(seed=seed, population_size=population)
    startup = settings.startup
    if name == "tpe":
        return lambda seed: BoundedTPESampler(seed=seed, n_startup_trials=startup)
    if name == "gp":
        return lambda seed: samplers.GPSampler(seed=seed, n_startup_trials=startup)
    from vinedresser.sweeps.cma import CmaEsSampler

    return lambda seed: CmaEsSampler(seed, startup)
