"""Prepare the runs of an experiment: everything that exists before their training starts."""

from __future__ import annotations

import itertools
import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from vinedresser.capture.attach.launching import attach_environment
from vinedresser.data.channels import channel_environment
from vinedresser.data.downloading import download
from vinedresser.errors import AlreadyARun, ConfigError, KeyMissing
from vinedresser.infra.catalog.known_tracking import remember_tracking
from vinedresser.infra.services.tracking import prepare_tracking
from vinedresser.infra.supervise.launcher import prepare_run
from vinedresser.objects import LocalStorage, Location, is_remote
from vinedresser.plain_logs import plain_logger
from vinedresser.processes import this_process
from vinedresser.rules.stated.good_runs import GoodRuns
from vinedresser.store.records import (
    EXPERIMENT_KEY,
    LaunchRecord,
    RemedyRecord,
    RestartRecord,
    RunRecord,
    TrackingRecord,
    new_run,
)
from vinedresser.tasks.config.experiment import Experiment
from vinedresser.tasks.config.run_spec import RunSpec
from vinedresser.tasks.config.stated_tables import with_good_runs
from vinedresser.tasks.interruption import INTERRUPTED
from vinedresser.tasks.lifecycle.judging import rules_key
from vinedresser.tasks.lifecycle.mlflow_run import begin_tracking
from vinedresser.tasks.places.cluster_place import ClusterPlace, WorkOrder
from vinedresser.tasks.places.remote_place import RemotePlace, reserve_url
from vinedresser.tasks.places.run_place import RunPlace

__all__ = ["RunMaker", "fetch_channels", "prepare_mlflow"]

_log = plain_logger(__name__)


def prepare_mlflow(store: Location, uri: str, experiment: str) -> TrackingRecord:
    """Prepare MLflow for the runs of a store, and return where it keeps them.

    One process does this before any training: several that create a fresh database at once break
    it.

    Args:
        uri: MLflow's tracking URI.
        experiment: name of MLflow's experiment.

    Raises:
        TrackingError: MLflow's database or server refused.
    """
    remember_tracking(store, uri)
    return TrackingRecord(uri, prepare_tracking(uri, experiment), run_id="")


def fetch_channels(experiment: Experiment) -> dict[str, list[str]]:
    """Return what programs get of each channel: scripts of SageMaker folders of this machine.

    What is on S3 is downloaded for them, unless it is there already.

    Raises:
        ConfigError: a channel names no objects on S3.
        LaunchError: the flow was interrupted meanwhile.
        StoreError: the storage refused a request.
    """
    if not experiment.run.contract:
        return {**experiment.channels}
    found = {}
    for name, sources in experiment.channels.items():
        try:
            found[name] = [
                str(download(one, INTERRUPTED.is_set)) if is_remote(one) else one for one in sources
            ]
        except (ConfigError, KeyMissing) as error:
            raise ConfigError(f"{experiment.path}: data.{name}: {error}") from error
    return found


class RunMaker:
    """Makes runs of an experiment: directory, place and MLflow run; it launches nothing.

    Args:
        experiment: settings that the runs share.
        channels: see `fetch_channels`.
        tracking: where MLflow keeps them, without a run.
        flow: id of the flow run that they belong to.
        order: how workers of a cluster make them; None: they train in local processes.
        patience: seconds that a training continues without this process, to be adopted.
    """

    def __init__(
        self,
        experiment: Experiment,
        channels: Mapping[str, Sequence[str]],
        tracking: TrackingRecord,
        *,
        flow: str,
        order: WorkOrder | None = None,
        patience: float = 0.0,
    ) -> None:
        self._experiment = experiment
        self._channels = channels
        self._tracking = tracking
        self._flow = flow
        self._order = order
        self._patience = patience

    def make(
        self,
        spec: RunSpec,
        *,
        remedy: RemedyRecord | None = None,
        restart: RestartRecord | None = None,
        parent: str = "",
    ) -> RunPlace:
        """Make a run under the first free name of NAME, NAME-2, NAME-3 and so on.

        Args:
            remedy: the stopped run that it replaces, if any.
            restart: the failed run that it begins again, if any.
            parent: id of the MLflow run under which it is shown; "" for the maker's.

        Raises:
            TrackingError: MLflow's database or server refused.
            StoreError: the store refused a request.
        """
        good = self._experiment.good_runs(spec)
        for number in itertools.count(1):
            try:
                place = self._place(spec.name if number == 1 else f"{spec.name}-{number}")
                run = self._prepare(spec, place, remedy, restart, good)
                break
            except AlreadyARun:
                continue
        storage = LocalStorage(place.directory)
        for group, table in self._experiment.rules.items():
            rules = self._rules(with_good_runs(table, good))
            storage.put(rules_key(group), [json.dumps(rules, indent=1).encode()])
        if not self._tracking.parent:
            # Of a sweep or pruning, its own folder has it.
            storage.put(EXPERIMENT_KEY, [self._experiment.toml.encode()])
        tracking = replace(self._tracking, parent=parent or self._tracking.parent)
        begin_tracking(place, storage, run, tracking)
        return place

    def _place(self, name: str) -> RunPlace:
        """Return the place of a run that begins later; on an object store its name is reserved."""
        store = self._experiment.store
        if self._order is not None:
            return ClusterPlace.make(store, name, self._order)
        if isinstance(store, Path):
            return RunPlace(store / name)
        return RemotePlace.make(reserve_url(store, name), _log.warning)

    def _prepare(
        self,
        spec: RunSpec,
        place: RunPlace,
        remedy: RemedyRecord | None,
        restart: RestartRecord | None,
        good: GoodRuns | None,
    ) -> RunRecord:
        """Turn the directory of a place into a run that can be started."""
        experiment = self._experiment
        data = channel_environment(self._channels, experiment.data_cache)
        environment = data | spec.environment
        if experiment.run.attach and not place.elsewhere:
            environment = environment | attach_environment(os.environ | environment)
        run = replace(
            new_run(place.name, spec.parameters),
            total_steps=spec.total_steps,
            data={name: [*sources] for name, sources in experiment.channels.items()},
            capture=experiment.capture.to_json(),
            capture_digest=experiment.capture.digest(),
            needs=experiment.needs.to_json(),
            capture_budget=experiment.capture_budget,
            guard=experiment.guard or "",
            snapshots=experiment.snapshots.to_json(),
            live=experiment.live.to_json(),
            expectations=[*experiment.expectations],
            references=[*good.runs] if good else [],
            named_references=[*good.named] if good else [],
            flow=self._flow,
            remedy=remedy.to_json() if remedy else {},
            restart=restart.to_json() if restart else {},
        )
        launch = LaunchRecord(
            argv=spec.argv,
            cwd=str(experiment.cwd),
            environment=environment,
            owner=asdict(this_process()),
            patience=self._patience,
            **{**experiment.run.launch, **spec.launch},
        )
        return prepare_run(place.directory, run, launch)

    def _rules(self, table: Mapping[str, Any]) -> dict[str, Any]:
        """Return the file by which a rule group judges a run."""
        rules = {"rules": table, "actions": self._experiment.actions}
        if self._experiment.suspicions:
            rules["suspicions"] = self._experiment.suspicions
        if self._experiment.digest:
            rules["digest"] = {"sweep": self._experiment.run.name}
        return rules
