"""`sweep.toml`: an experiment file with a search space and the settings of the search.

    [sweep]          metric, direction, trials, sampler, pruner and so on: `sweeps.settings`
    [space]          lr = { log = [1e-4, 1.0] }, activation = ["relu", "tanh"], ...: `sweeps.space`
    [prune]          the trials are prunings: `config.sweep_prunings`
    [run] and the other tables: as in an experiment file (`config.experiment`), without variants

The trials are the runs of a separate store, ``STORE/NAME``.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from vinedresser.errors import ConfigError
from vinedresser.infra.configuration import build, load_toml
from vinedresser.objects.files import folder_below
from vinedresser.pruning.rounds.round_run import FOLDER
from vinedresser.pruning.rounds.settings import PREFIX, PruneTable
from vinedresser.store.records import KEEP_MODEL_VARIABLE
from vinedresser.sweeps.dimension import Choice
from vinedresser.sweeps.known_trials import KnownTrials, known_trials
from vinedresser.sweeps.settings import SweepTable
from vinedresser.sweeps.space import Space
from vinedresser.sweeps.spec import SweepRecord
from vinedresser.sweeps.study import Study
from vinedresser.sweeps.trial import Proposal, trial_name
from vinedresser.tasks.config.experiment import Experiment, experiment_of, overridden
from vinedresser.tasks.config.parent_file import ParentFile, with_own_store
from vinedresser.tasks.config.run_spec import RunSpec
from vinedresser.tasks.config.sweep_prunings import (
    as_training,
    shared_table,
    with_settings,
)

__all__ = ["Sweep", "load_sweep", "sweep_of"]

_OWN = ("sweep", "space", "prune")


@dataclass(frozen=True)
class Sweep(ParentFile):
    """A checked sweep file.

    Attributes:
        experiment: settings that the trials share; its store is the sweep's own.
        settings: settings of the search.
        space: the search space.
        table: settings that the prunings share; None: the trials are trainings.
        planned: number of trials that it has at most; None if that is unknown.
        known: trials of another sweep from which it starts; None: it starts from nothing.
        members: number of members of its population; None: it has none.
    """

    RECORD = SweepRecord

    settings: SweepTable
    space: Space
    table: PruneTable | None = None
    planned: int | None = None
    known: KnownTrials | None = None
    members: int | None = None

    @property
    def notice(self) -> str:
        """What to know before it begins; "" for nothing."""
        known = "" if self.known is None else self.known.said
        return "; ".join(filter(None, (known, self.experiment.notice)))

    def study(self, path: Path | None = None, *, join: bool = False) -> Study:
        """Return its study.

        Args:
            path: path of the journal; None: keep nothing.
            join: run it beside another process.

        Raises:
            ConfigError: a sampler, a pruner or a point is invalid.
            MissingDependency: a sampler needs a package that is not installed.
            StillRunning: another process runs this sweep.
            CorruptData: the journal cannot be read.
        """
        where = f"{self.experiment.path}: sweep"
        return Study(self.settings, self.space, path, where=where, join=join)

    def models(self, number: int) -> Path:
        """Return the folder of a trial that is a pruning, with its models.

        Raises:
            NotAFile: it is something else, such as a symbolic link.
        """
        return folder_below(self.state, f"prunings/{trial_name(number)}")

    def run_spec(self, proposal: Proposal) -> RunSpec:
        """Return the run specification of a trial."""
        shared = self.experiment.specs[0]
        seed: dict[str, Choice] = {} if proposal.seed is None else {"seed": proposal.seed}
        chosen = self.space.decoded(proposal.parameters) | self._until(proposal)
        parameters: dict[str, Any] = {**shared.parameters, **seed, **chosen}
        kept = {} if self.settings.register is None else {KEEP_MODEL_VARIABLE: "1"}
        environment = shared.environment | kept
        if self.table is not None:
            parameters[FOLDER] = str(self.models(proposal.number))
            if self.table.tracked_weights is not None:
                parameters[f"{PREFIX}weights"] = str(self.fetched_weights)
        name = trial_name(proposal.number)
        return replace(shared, name=name, parameters=parameters, environment=environment)

    def check_start(self, *, retry_failed: bool, join: bool) -> None:
        """Refuse to begin what cannot train.

        Args:
            retry_failed: its failed trials are to be tried again.
            join: it is to run beside another process.

        Raises:
            ConfigError: a program is missing, other trials have replaced the failed ones, or it
                cannot be joined.
            MissingDependency: a package is not installed.
        """
        self.experiment.refuse_missing()
        if join and (
            not isinstance(self.experiment.store, Path) or self.experiment.runner.name != "local"
        ):
            raise ConfigError(
                f"{self.experiment.path}: --join: needs a store on a disk that the processes "
                'share, and run.runner = "local"'
            )
        if retry_failed and self.members is not None:
            raise ConfigError(
                f"{self.experiment.path}: --retry-failed: not supported with pbt, where copies of "
                "good members replace failed ones; use --resume"
            )

    def _until(self, proposal: Proposal) -> dict[str, Choice]:
        """Return the script's parameter for the number of epochs of a line of trials."""
        given = self.settings.sampler
        until = given.get("until") if isinstance(given, Mapping) else None
        return {until: (self.settings.epochs or 1) * proposal.age} if until else {}


def load_sweep(
    path: Path, *, store: Path | str | None = None, max_concurrent: int | None = None
) -> Sweep:
    """Read and check a sweep file.

    Args:
        path: the TOML file.
        store: overrides ``run.store``, the directory that gets the sweep's own store.
        max_concurrent: overrides ``run.max_concurrent``.

    Raises:
        ConfigError: the file is invalid; the message names the key and what is expected.
        MissingDependency: a sampler needs a package that is not installed.
    """
    return sweep_of(overridden(load_toml(path), store=store, max_concurrent=max_concurrent), path)


def sweep_of(document: Mapping[str, Any], path: Path) -> Sweep:
    """Check a sweep file that has been read; see `load_sweep`."""
    for table, holds in (("sweep", "at least metric and trials"), ("space", "the search space")):
        if table not in document:
            raise ConfigError(f"{path}: {table}: missing; it defines {holds}")
    if "variants" in document:
        raise ConfigError(
            f"{path}: variants: not supported in a sweep; list configurations in sweep.points"
        )
    if "remedy" in document:
        raise ConfigError(
            f"{path}: remedy: not supported in a sweep, which tries other configurations anyway"
        )
    given = document
    if "prune" in document:
        document = as_training(document, path)
    settings = build(SweepTable, document["sweep"], f"{path}: sweep")
    space = Space.parse(document["space"], f"{path}: space")
    rest = {key: value for key, value in document.items() if key not in _OWN}
    # Without a number of trials, as many train at the same time as there is room for.
    trials = settings.trials or sys.maxsize
    experiment = experiment_of(rest, path, trials=trials)
    _refuse_twice(experiment, space, settings, path)
    inner = with_own_store(experiment, experiment.run.name)
    pruned = shared_table(inner, document["prune"], space) if "prune" in document else None
    if pruned is not None:
        inner = with_settings(inner, pruned, space)
    inner = replace(inner, digest=bool(inner.action_plan.messages), document=given)
    sweep = Sweep(inner, settings, space, pruned)
    # Reports an invalid sampler, pruner or point before anything is made.
    study = sweep.study()
    known = None
    if settings.warm_start is not None:
        other = path.absolute().parent / settings.warm_start
        known = known_trials(other, settings, space, f"{path}: sweep.warm_start")
    sweep = replace(sweep, planned=study.planned, known=known, members=study.members)
    if not study.comparing:
        return sweep
    goal = settings.goals[0]
    suspicions = {"metric": goal.metric, "mode": goal.mode}
    return replace(sweep, experiment=replace(inner, suspicions=suspicions))


def _refuse_twice(experiment: Experiment, space: Space, settings: SweepTable, path: Path) -> None:
    """Refuse a parameter that is set twice."""
    parameters: Mapping[str, Any] = experiment.run.parameters
    until = settings.sampler.get("until") if isinstance(settings.sampler, Mapping) else None
    if until in parameters:
        raise ConfigError(
            f"{path}: run.parameters.{until}: also set by sweep.sampler.until; remove one of them"
        )
    for dimension in space.dimensions:
        if dimension.name in parameters:
            raise ConfigError(
                f"{path}: space.{dimension.name}: also in run.parameters; remove one of them"
            )
        seeds = "seeds" if settings.seeds else "again" if settings.again else ""
        if dimension.name == "seed" and seeds:
            raise ConfigError(f"{path}: space.seed: also set by sweep.{seeds}; remove one of them")
