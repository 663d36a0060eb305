"""`experiment.toml`: the trainings to run, their capture, their rules and their tracking.

    [run]            what the runs share: `config.run_spec`
    [variants.NAME]  one run each, overriding [run]
    [capture]        budget: share of the time for captures that only rules need; guard:
                     "nonfinite" or "off"
    [capture.NAME]   a save config: every, start, stop, steps, modes, reductions, tensor; regex
    [data]           the sources of each channel: `config.data_table`
    [snapshots]      when they are taken: `snapshots.settings`
    [live]           steering the trainings: `capture.live.settings`
    [expect]         lines: what the user expects: `config.stated_tables`
    [reference]      run: the good runs to compare with: `config.stated_tables`
    [rules]          preset, such as "default" (`rules.presets`); [rules.NAME] severity,
                     group, actions and its parameters; NAME may be "my_rules.py:MyRule"
    [actions]        on_stop, on_warning, on_info: actions for findings of that severity
    [actions.NAME]   its settings: `rules.actions.settings`
    [remedy]         replace a stopped run: `config.remedy_settings`
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
from vinedresser.capture.live.settings import LiveSettings
from vinedresser.capture.recording.budget import check_share
from vinedresser.errors import ConfigError, LaunchError
from vinedresser.infra.catalog.stores import local_state
from vinedresser.infra.configuration import build, load_toml, masked_toml
from vinedresser.infra.services.clusters.runner_settings import RunnerSettings, runner_settings
from vinedresser.infra.supervise.cores import core_shortage
from vinedresser.infra.supervise.gpus import VISIBLE_GPUS, visible_gpus
from vinedresser.infra.supervise.hosts.commands import refuse_launcher
from vinedresser.masking import MASK, masked_text
from vinedresser.objects import Location, is_remote
from vinedresser.rules.actions.plan import ActionPlan
from vinedresser.rules.base import Rule, capture_for
from vinedresser.rules.custom_rules import absolute_reference
from vinedresser.rules.presets import preset_table
from vinedresser.rules.registry import rules_from_table
from vinedresser.rules.stated.claims import needs_of
from vinedresser.rules.stated.good_runs import GoodRuns
from vinedresser.snapshots.settings import SnapshotSettings
from vinedresser.tasks.config.actions_table import checked_actions, refuse_missing_block
from vinedresser.tasks.config.data_table import (
    checked_cache,
    checked_channels,
    refuse_missing_files,
)
from vinedresser.tasks.config.known_tables import check_tables
from vinedresser.tasks.config.locations import store_in, tracking_uri_in
from vinedresser.tasks.config.references import good_runs_for
from vinedresser.tasks.config.remedy_settings import RemedySettings, remedy_settings
from vinedresser.tasks.config.run_spec import (
    RunSpec,
    RunTable,
    masked_keys,
    refuse_missing_program,
    run_specs,
)
from vinedresser.tasks.config.snapshots_table import guard_and_snapshots, stopping
from vinedresser.tasks.config.stated_tables import add_stated, expected, references_in

__all__ = ["Experiment", "TrackingTable", "experiment_of", "load_experiment", "overridden"]

_TABLES = (
    *("run", "variants", "data", "capture", "snapshots", "live"),
    *("expect", "reference", "rules", "actions", "remedy", "tracking"),
)


@dataclass(frozen=True)
class TrackingTable:
    """Where MLflow keeps the runs.

    Attributes:
        uri: tracking URI; default: ``MLFLOW_TRACKING_URI``, else a SQLite database in the store, or
            for an object store in the folder of its state on this machine.
        experiment: MLflow's experiment; default: the name of the run.
    """

    uri: str | None = None
    experiment: str | None = None


@dataclass(frozen=True)
class Experiment:
    """A checked experiment file; paths are absolute.

    Attributes:
        run: settings that the runs share.
        runner: engine on which they train.
        store: directory of the run directories, or the URL of an object store.
        cwd: directory in which commands start.
        specs: the runs to make.
        channels: sources of the training data by channel.
        data_cache: maximum size of the local cache of training data; "": there is none.
        capture: capture configuration of the file.
        needs: capture configuration that the rules need.
        capture_budget: share of a training's time for what only rules need; None: the default.
        guard: whether gradients that are not finite are looked for before updates; None: the
            default, which is yes if there is a table of snapshots.
        snapshots: when snapshots are taken and how many are kept.
        live: whether the trainings may be steered.
        expectations: what the user expects of each training, a line each.
        references: locations of good runs to compare with, or "auto".
        rules: tables of the rules by group, for `rules.worker`.
        actions: table of the actions, for `rules.worker`.
        remedy: maximum number of attempts to replace a stopped run, and where they begin.
        tracking_uri: MLflow's tracking URI.
        tracking_experiment: MLflow's experiment.
        suspicions: for a sweep that compares its trials, the metric and mode at whose values the
            judges record their suspicions.
        digest: messages are sent by the sweep, in its digest, and not about each run.
        document: contents of the file, with the settings that override it.
    """

    path: Path
    run: RunTable
    runner: RunnerSettings
    store: Location
    cwd: Path
    specs: tuple[RunSpec, ...]
    channels: Mapping[str, list[str]]
    data_cache: str
    capture: CaptureConfig
    needs: CaptureConfig
    capture_budget: float | None
    guard: str | None
    snapshots: SnapshotSettings
    live: LiveSettings
    expectations: tuple[str, ...]
    references: tuple[str, ...]
    rules: Mapping[str, Mapping[str, Any]]
    actions: Mapping[str, Any]
    remedy: RemedySettings
    tracking_uri: str
    tracking_experiment: str
    suspicions: Mapping[str, str] = field(default_factory=dict)
    digest: bool = False
    document: Mapping[str, Any] = field(default_factory=dict)

    @property
    def toml(self) -> str:
        """The file as TOML with the settings that override it, without comments and secrets."""
        return masked_toml(self.document)

    @property
    def max_concurrent(self) -> int:
        """Maximum number of runs that train at the same time."""
        return self.run.slots

    @property
    def action_plan(self) -> ActionPlan:
        """Which actions follow which finding."""
        return ActionPlan.from_tables(self.actions, _all_rules(self.rules))

    @property
    def notice(self) -> str:
        """What to know before it begins: masked values, and a lack of cores; "" for nothing."""
        masked = self._masked_values()
        here = self.runner.address is None and not self.run.elsewhere
        short = core_shortage(self.run.ranks) if here else ""
        return "; ".join(one for one in (masked, short and f"run.ranks: {short}") if one)

    def _masked_values(self) -> str:
        """Return a sentence about values that are masked because they look like secrets."""
        found = masked_keys(self.specs)
        if masked_text(self.tracking_uri) != self.tracking_uri:
            found.append("the password in tracking.uri")
        if not found:
            return ""
        return (
            f"{', '.join(found)}: looks like a secret; records, reports and MLflow show {MASK} "
            "instead; pass secrets as environment variables that run.environment_from names"
        )

    def good_runs(self, spec: RunSpec) -> GoodRuns | None:
        """Return the good runs that a run is compared with; None if there are none.

        Raises:
            ConfigError: a run does not exist, did not end well, or is of another script.
        """
        where = f"{self.path}: reference.run"
        return good_runs_for(self.references, self.store, spec.argv, spec.parameters, where=where)

    def refuse_missing(self) -> None:
        """Refuse to begin trainings on this machine without what they need.

        Raises:
            ConfigError: more GPUs are requested than there are, a variable is not set, files of
                a channel, good runs or a notification block do not exist, or what starts the ranks
                is missing.
        """
        refuse_missing_block(self.actions, self.path)
        if self.runner.address is not None:
            return
        try:
            refuse_launcher(self.run)
        except LaunchError as error:
            raise ConfigError(f"{self.path}: run.{error}") from error
        self.good_runs(self.specs[0])
        refuse_missing_files(self.channels, f"{self.path}: data")
        if self.run.own_gpus * self.max_concurrent > (there := len(visible_gpus())):
            key = "gpus" if self.run.gpus else "gpus_per_rank"
            each = "1 training" if (several := self.max_concurrent) == 1 else f"{several} trainings"
            raise ConfigError(
                f"{self.path}: run.{key}: {self.run.own_gpus} for each of {each} at the same time; "
                f"this machine has {there}"
            )
        for name in () if self.run.elsewhere else self.run.environment_from:
            if name not in os.environ:
                raise ConfigError(
                    f"{self.path}: run.environment_from: {name} is not set in the environment"
                )


def load_experiment(
    path: Path,
    *,
    store: Path | str | None = None,
    max_concurrent: int | None = None,
    remedy: int | None = None,
) -> Experiment:
    """Read and check an experiment file.

    Args:
        store: overrides ``run.store``: a path, relative to the working directory, or the URL of an
            object store.
        max_concurrent: overrides ``run.max_concurrent``.
        remedy: overrides ``remedy.times``.

    Raises:
        ConfigError: the file is invalid; the message names the key and what is expected.
    """
    document = overridden(load_toml(path), store=store, max_concurrent=max_concurrent)
    if remedy is not None:
        document = overridden({"remedy": {}, **document}, "remedy", times=remedy)
    return experiment_of(document, path)


def overridden(
    document: Mapping[str, Any],
    table: str = "run",
    *,
    store: Path | str | None = None,
    **settings: object,
) -> dict[str, Any]:
    """Return the contents of a file with other values of some settings.

    Args:
        store: the store: a path, relative to the working directory, or a URL; None: as in the file.
        settings: the values by key; None: as in the file.

    Raises:
        ConfigError: the URL is invalid.
    """
    if store is not None:
        settings["store"] = os.fspath(store_in(store, Path.cwd()))
    given = {key: value for key, value in settings.items() if value is not None}
    before = document.get(table)
    # A table that is missing, or is none, is reported when it is checked.
    return {**document, table: {**before, **given}} if isinstance(before, Mapping) else {**document}


def experiment_of(document: Mapping[str, Any], path: Path, *, trials: int = 0) -> Experiment:
    """Check an experiment file that has been read; see `load_experiment`.

    Args:
        document: contents of the file.
        path: the file, for relative paths and messages.
        trials: number of runs made from it later; 0: one for each variant.

    Raises:
        ConfigError: see `load_experiment`.
    """
    check_tables(document, _TABLES, path)
    if "run" not in document:
        raise ConfigError(f"{path}: run: missing; it needs at least name and command")
    if isinstance(document["run"], Mapping) and "at_once" in document["run"]:
        raise ConfigError(f"{path}: run.at_once: renamed to run.max_concurrent")
    run = build(RunTable, document["run"], f"{path}: run")
    base = path.absolute().parent
    place = store_in(run.store, base)
    cwd = (base / run.cwd).resolve()
    if not cwd.is_dir():
        raise ConfigError(f"{path}: run.cwd: {cwd}: no such directory")
    runner = runner_settings(run.runner, f"{path}: run.runner")
    if run.system.name != "local":
        run = _on_hosts(run, runner, place, path)
    variants = document.get("variants", {})
    here = runner.address is None and not run.elsewhere
    if run.preflight and run.ranks > 1:
        raise ConfigError(f"{path}: run.preflight: not supported for a training of several ranks")
    if run.preflight and (trials or runner.name != "local"):
        raise ConfigError(
            f"{path}: run.preflight: only supported for trainings of an experiment file on this "
            "machine; `vinedresser check` checks a script by itself"
        )
    remedy = remedy_settings(document.get("remedy"), store=place, where=f"{path}: remedy")
    begins_again = bool(remedy.restarts) and not trials and runner.name == "local"
    _refuse_fewer_ranks(run, path, begins_again=begins_again)
    specs = run_specs(run, variants, f"{path}: variants", runs=trials, here=here)
    _refuse_both_ways(run, specs, path)
    channels = checked_channels(document.get("data", {}), base, f"{path}: data")
    if run.contract:
        _check_contract(specs, channels, path, downloads=runner.name == "local")
    if (runner.name, run.system.name) != ("local", "local") and (found := masked_keys(specs)):
        raise ConfigError(
            f"{path}: run: {found[0]} looks like a secret, which is not sent to workers; set it in "
            "their environment and name its variable in run.environment_from"
        )
    # All variants run the same program.
    refuse_missing_program(specs[0], cwd, f"{path}: run")
    expectations = expected(document.get("expect", {}), f"{path}: expect")
    references = references_in(document.get("reference", {}), base, f"{path}: reference")
    tables = _grouped(document.get("rules", {}), where=f"{path}: rules", base=base)
    add_stated(tables, expects=bool(expectations), compares=bool(references))
    rules: list[Rule] = []
    for group in tables.values():
        rules += rules_from_table(group, where=f"{path}: rules")
    needs = capture_for(rules, needs_of(expectations))
    capture, budget = _capture(document.get("capture", {}), f"{path}: capture")
    guard, snapshots = guard_and_snapshots(document, path)
    # Report here, not in the training, if the two disagree about a collection.
    capture.merged(needs)
    actions = checked_actions(document.get("actions", {}), _all_rules(tables), *(cwd, path))
    plan = ActionPlan.from_tables(actions, _all_rules(tables))
    data = document.get("data", {})
    tracking = build(TrackingTable, document.get("tracking", {}), f"{path}: tracking")
    return Experiment(
        path=path.absolute(),
        run=run,
        runner=runner,
        store=place,
        cwd=cwd,
        specs=tuple(specs),
        channels=channels,
        data_cache=checked_cache(data, f"{path}: data"),
        capture=capture,
        needs=needs,
        capture_budget=budget,
        guard=guard,
        snapshots=stopping(snapshots, rules, plan),
        live=LiveSettings.from_json(document.get("live", {}), f"{path}: live").located(base),
        expectations=expectations,
        references=references,
        rules=tables,
        remedy=remedy,
        actions=actions,
        tracking_uri=tracking_uri_in(
            tracking.uri, base, local_state(place), f"{path}: tracking.uri"
        ),
        tracking_experiment=tracking.experiment or run.name,
        document=document,
    )


def _on_hosts(run: RunTable, runner: RunnerSettings, store: Location, path: Path) -> RunTable:
    """Check settings of ranks that a launcher starts, and return them with an absolute path."""
    name = run.system.name
    if runner.name != "local":
        raise ConfigError(f"{path}: run.launcher: {name} starts ranks itself; remove run.runner")
    if run.preflight:
        raise ConfigError(f"{path}: run.preflight: not supported with the launcher {name}")
    if not isinstance(store, Path):
        raise ConfigError(
            f"{path}: run.launcher: {name} needs a store in a directory that all hosts share, not "
            f"{store}"
        )
    if not isinstance(run.launcher, str) and run.system.manifest:
        manifest = path.absolute().parent / run.system.manifest
        return replace(run, launcher={**run.launcher, "manifest": str(manifest)})
    return run


def _refuse_fewer_ranks(run: RunTable, path: Path, *, begins_again: bool) -> None:
    """Refuse a smallest number of ranks for trainings that do not begin again."""
    if run.min_ranks is not None and not begins_again:
        raise ConfigError(
            f"{path}: run.min_ranks: only supported for trainings of an experiment file with "
            "restarts in [remedy], and without run.runner"
        )


def _all_rules(groups: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
    """Return the tables of the rules of all groups by name."""
    return {name: entry for group in groups.values() for name, entry in group.items()}


def _check_contract(
    specs: Sequence[RunSpec],
    channels: Mapping[str, Sequence[str]],
    path: Path,
    *,
    downloads: bool,
) -> None:
    """Refuse what a script for SageMaker's containers cannot be given as there.

    Args:
        downloads: whether the trainings run on this machine, where channels on S3 are downloaded.
    """
    for key in masked_keys(specs):
        if key.startswith("parameters."):
            raise ConfigError(
                f"{path}: run.{key}: looks like a secret, which run.contract would store in files; "
                "pass it as a variable that run.environment_from names"
            )
    for name, sources in channels.items():
        remote = is_remote(sources[0])
        if len(sources) > 1 or not (downloads if remote else os.path.isdir(sources[0])):
            copy = "; copy the data into a folder first" if any(map(is_remote, sources)) else ""
            raise ConfigError(
                f"{path}: data.{name}: run.contract gives the script a folder of this machine, or "
                f"one prefix on S3 that this machine downloads, not {', '.join(sources)}{copy}"
            )


def _refuse_both_ways(run: RunTable, specs: Sequence[RunSpec], path: Path) -> None:
    """Refuse GPUs that are both assigned and named."""
    if run.own_gpus and any(VISIBLE_GPUS in spec.environment for spec in specs):
        key = "gpus" if run.gpus else "gpus_per_rank"
        raise ConfigError(
            f"{path}: run.{key}: assigns GPUs to each run; remove {VISIBLE_GPUS} from environment"
        )


def _capture(table: object, where: str) -> tuple[CaptureConfig, float | None]:
    """Return the capture configuration of the file, on top of the default, and the budget."""
    if not isinstance(table, Mapping):
        raise ConfigError(f"{where}: must have one table per collection, not {table!r}")
    collections = {name: one for name, one in table.items() if name not in ("budget", "guard")}
    budget = check_share(table["budget"], f"{where}.budget") if "budget" in table else None
    try:
        config = CaptureConfig.from_json(collections).with_defaults()
    except ConfigError as error:
        raise ConfigError(f"{where}.{error}") from error
    for name, collection in config.collections.items():
        if any(save.when is not None for save in collection.saves):
            raise ConfigError(
                f"{where}.{name}.when: only supported in Python, as SaveConfig(when=...)"
            )
    return config, budget


def _grouped(table: object, *, where: str, base: Path) -> dict[str, dict[str, dict[str, Any]]]:
    """Return the rules of each group with their settings.

    A process judges each group; rules are in the group "default" unless they name another, so that
    one pass over the data serves them all.

    Args:
        table: ``[rules]`` of the file: ``preset``, and per rule a table that overrides the preset's
            or ``false`` to omit it.
        where: beginning of messages.
        base: directory to which the paths of custom rules are relative; they become absolute.
    """
    if not isinstance(table, Mapping):
        raise ConfigError(f"{where}: must be a table, not {table!r}")
    settings = dict(table)
    chosen = preset_table(settings.pop("preset", "default"), where=f"{where}.preset")
    for name, entry in settings.items():
        if entry is False:
            chosen.pop(name, None)
        elif isinstance(entry, Mapping):
            full = absolute_reference(name, base)
            chosen[full] = {**chosen.get(full, {}), **entry}
        else:
            raise ConfigError(f"{where}.{name}: must be a table or false, not {entry!r}")
    groups: dict[str, dict[str, dict[str, Any]]] = {}
    for name, entry in chosen.items():
        group = entry.pop("group", "default")
        if not isinstance(group, str) or not group.isidentifier():
            raise ConfigError(f"{where}.{name}.group: must be a plain word, not {group!r}")
        groups.setdefault(group, {})[name] = entry
    return groups
