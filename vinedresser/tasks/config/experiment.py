"""`experiment.toml`: which trainings to run, what to capture, which rules judge, where to record.

    [run]            name, command or entry, store, cwd, total_steps, max_concurrent, grace, attach,
                     runner, parameters, environment
    [variants.NAME]  parameters, environment, total_steps: one run each, on top of [run]
    [capture.NAME]   a save config: every, start, stop, steps, modes, reductions, tensor; regex
    [rules]          preset, such as "default" (`rules.presets`); [rules.NAME] severity,
                     group, actions and its parameters; NAME may be "my_rules.py:MyRule"
    [actions]        on_stop, on_warning, on_info: what follows a finding of that severity
    [actions.NAME]   notify, email, command, snapshot, adjust: its settings
    [remedy]         times, from, resume: begin a stopped run again, corrected
    [tracking]       uri, experiment

Paths are relative to the file. Parameters reach the command as ``--name value``.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from vinedresser.capture.config.capture_config import CaptureConfig
from vinedresser.errors import ConfigError, LaunchError, did_you_mean
from vinedresser.infra.clusters.runner_settings import RunnerSettings, runner_settings
from vinedresser.infra.configuration import build, load_toml
from vinedresser.infra.gpus import VISIBLE_GPUS, visible_gpus
from vinedresser.infra.launcher import check_command
from vinedresser.infra.tracking import absolute_uri
from vinedresser.rules.actions.plan import ActionPlan
from vinedresser.rules.base import Rule, capture_for
from vinedresser.rules.registry import rules_from_table
from vinedresser.store.storage import Location, parse_location
from vinedresser.tasks.config.remedy_settings import RemedySettings, remedy_settings
from vinedresser.tasks.config.rule_groups import grouped
from vinedresser.tasks.config.run_spec import RunSpec, RunTable, refuse_missing_program, run_specs
from vinedresser.tasks.stores import local_state

__all__ = [
    "Experiment",
    "TrackingTable",
    "experiment_of",
    "load_experiment",
]

_TABLES = ("run", "variants", "capture", "rules", "actions", "remedy", "tracking")


@dataclass(frozen=True)
class TrackingTable:
    """Where MLflow keeps the runs.

    Attributes:
        uri: tracking URI; a SQLite database in the store if not given, or in the folder of the
            store's state on this machine where it is an object store.
        experiment: MLflow's experiment; the name of the run if not given.
    """

    uri: str | None = None
    experiment: str | None = None


@dataclass(frozen=True)
class Experiment:
    """A checked experiment file; paths are absolute.

    Attributes:
        path: the file.
        run: what the runs share.
        runner: what they run on.
        store: the directory that gets the run directories, or the URL of an object store.
        cwd: the directory to start commands in.
        specs: the runs to make.
        capture: what the file asks the hook to capture.
        needs: what the rules ask it to capture.
        rules: the rules' tables by group, as `rules.worker` takes them.
        actions: the table of what follows a finding, as `rules.worker` takes it.
        remedy: how often a run that a rule stopped is begun again, and from where.
        tracking_uri: MLflow's tracking URI.
        tracking_experiment: MLflow's experiment.
        suspicions: of a sweep that compares its trials, the metric and mode at whose values the
            judges are to write down what they suspect.
    """

    path: Path
    run: RunTable
    runner: RunnerSettings
    store: Location
    cwd: Path
    specs: tuple[RunSpec, ...]
    capture: CaptureConfig
    needs: CaptureConfig
    rules: Mapping[str, Mapping[str, Any]]
    actions: Mapping[str, Any]
    remedy: RemedySettings
    tracking_uri: str
    tracking_experiment: str
    suspicions: Mapping[str, str] = field(default_factory=dict)

    @property
    def max_concurrent(self) -> int:
        """How many runs train at the same time."""
        return self.run.slots

    def refuse_missing_gpus(self) -> None:
        """Refuse to begin where trainings of this machine would wait for GPUs that it has not.

        Raises:
            ConfigError: how many are wanted, and how many there are.
        """
        wanted, there = self.run.gpus * self.max_concurrent, len(visible_gpus())
        if self.runner.address is None and wanted > there:
            each = f"{self.run.gpus} for each of {self.max_concurrent} trainings at the same time"
            raise ConfigError(f"{self.path}: run.gpus: {each}; this machine shows {there}")


def load_experiment(
    path: Path,
    *,
    store: Path | str | None = None,
    max_concurrent: int | None = None,
    remedy: int | None = None,
) -> Experiment:
    """Read and check an experiment file.

    Args:
        path: the TOML file.
        store: takes the place of the file's ``run.store``: a path, relative to the working
            directory, or the URL of an object store.
        max_concurrent: overrides ``run.max_concurrent``.
        remedy: takes the place of the file's ``remedy.times``.

    Raises:
        ConfigError: the file, key, rule or collection that is wrong, and what would be right.
    """
    return experiment_of(
        load_toml(path), path, store=store, max_concurrent=max_concurrent, remedy=remedy
    )


def experiment_of(
    document: Mapping[str, Any],
    path: Path,
    *,
    store: Path | str | None = None,
    max_concurrent: int | None = None,
    remedy: int | None = None,
    trials: int = 0,
) -> Experiment:
    """Check an experiment file that has been read; see `load_experiment`.

    Args:
        document: what the file holds.
        path: the file, to which paths are relative, and for messages.
        store: as there.
        max_concurrent: as there.
        remedy: as there.
        trials: how many runs are made of it later; 0: its variants are.

    Raises:
        ConfigError: as there.
    """
    for table in document:
        if table not in _TABLES:
            known = did_you_mean(table, _TABLES) or f"; the tables are {', '.join(_TABLES)}"
            raise ConfigError(f"{path}: {table}: no such table{known}")
    if "run" not in document:
        raise ConfigError(f"{path}: run: is missing; it holds at least name and command")
    if isinstance(document["run"], Mapping) and "at_once" in document["run"]:
        raise ConfigError(f"{path}: run.at_once: renamed to run.max_concurrent")
    run = build(RunTable, document["run"], f"{path}: run")
    run = replace(run, max_concurrent=max_concurrent or run.max_concurrent)
    base = path.absolute().parent
    place = _store(store or run.store, Path.cwd() if store else base)
    cwd = (base / run.cwd).resolve()
    if not cwd.is_dir():
        raise ConfigError(f"{path}: run.cwd: {cwd}: no such directory")
    runner = runner_settings(run.runner, f"{path}: run.runner")
    variants, here = document.get("variants", {}), runner.address is None
    specs = run_specs(run, variants, f"{path}: variants", runs=trials, here=here)
    _refuse_both_ways(run, specs, path)
    # Variants differ in options, not in the program.
    refuse_missing_program(specs[0], cwd, f"{path}: run")
    tables = grouped(document.get("rules", {}), where=f"{path}: rules", base=base)
    rules: list[Rule] = []
    for group in tables.values():
        rules += rules_from_table(group, where=f"{path}: rules")
    needs = capture_for(rules)
    capture = _capture(document.get("capture", {}), f"{path}: capture")
    # Here, not in the training, if the two do not agree on a collection.
    capture.merged(needs)
    tracking = build(TrackingTable, document.get("tracking", {}), f"{path}: tracking")
    return Experiment(
        path=path.absolute(),
        run=run,
        runner=runner,
        store=place,
        cwd=cwd,
        specs=tuple(specs),
        capture=capture,
        needs=needs,
        rules=tables,
        remedy=remedy_settings(
            document.get("remedy"), times=remedy, store=place, where=f"{path}: remedy"
        ),
        actions=_actions(document.get("actions", {}), tables, cwd, path),
        tracking_uri=_tracking_uri(tracking.uri, base, local_state(place), f"{path}: tracking.uri"),
        tracking_experiment=tracking.experiment or run.name,
    )


def _refuse_both_ways(run: RunTable, specs: Sequence[RunSpec], path: Path) -> None:
    """Refuse GPUs that are both shared out and named."""
    if run.gpus and any(VISIBLE_GPUS in spec.environment for spec in specs):
        raise ConfigError(
            f"{path}: run.gpus: each run gets its own; leave {VISIBLE_GPUS} out of environment"
        )


def _actions(
    table: object, groups: Mapping[str, Mapping[str, Any]], cwd: Path, path: Path
) -> dict[str, Any]:
    """Return the checked table of actions, in which paths are absolute."""
    rules = {name: entry for group in groups.values() for name, entry in group.items()}
    where = f"{path}: actions"
    ActionPlan.from_tables(table, rules, where=where, where_rules=f"{path}: rules")
    assert isinstance(table, Mapping)
    actions = dict(table)
    if "command" in actions:
        command = dict(actions["command"])
        command["cwd"] = str(cwd / command.get("cwd", "."))
        try:
            check_command(command["argv"], Path(command["cwd"]), {})
        except LaunchError as error:
            raise ConfigError(f"{where}.command: {error}") from error
        actions["command"] = command
    return actions


def _capture(table: object, where: str) -> CaptureConfig:
    """Return what the file asks the hook to capture, on top of the default."""
    if not isinstance(table, Mapping):
        raise ConfigError(f"{where}: must hold one table per collection, not {table!r}")
    try:
        config = CaptureConfig.from_json(table).with_defaults()
    except ConfigError as error:
        raise ConfigError(f"{where}.{error}") from error
    for name, collection in config.collections.items():
        if any(save.when is not None for save in collection.saves):
            raise ConfigError(
                f"{where}.{name}.when: a predicate can be given in Python only, as "
                "SaveConfig(when=...)"
            )
    return config


def _store(given: str | os.PathLike[str], base: Path) -> Location:
    """Return a store as an absolute path or a URL."""
    store = parse_location(given)
    return (base / store.expanduser()).resolve() if isinstance(store, Path) else store


def _tracking_uri(uri: str | None, base: Path, state: Path, where: str) -> str:
    """Return the tracking URI, by default of a SQLite database in the folder of the state."""
    try:
        if uri is None:
            return absolute_uri("sqlite:///mlflow.db", state)
        return absolute_uri(uri, base)
    except ConfigError as error:
        raise ConfigError(f"{where}: {error}") from error
