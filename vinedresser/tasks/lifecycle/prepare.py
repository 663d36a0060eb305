"""Everything that must exist before the first training starts: run directories and MLflow runs."""

from __future__ import annotations

import itertools
import json
import logging
import os
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

from vinedresser.capture.attach.launching import attach_environment
from vinedresser.errors import AlreadyARun
from vinedresser.infra.clusters.runner_settings import LOCAL
from vinedresser.infra.launcher import prepare_run
from vinedresser.infra.tracking import RUN_TAG, create_run, prepare_tracking
from vinedresser.processes import this_process
from vinedresser.store.records import RemedyRecord, RunRecord, TrackingRecord, write_record
from vinedresser.store.storage import LocalStorage, Location
from vinedresser.tasks.config.experiment import Experiment
from vinedresser.tasks.config.run_spec import RunSpec
from vinedresser.tasks.places.remote_place import RemotePlace, reserve_url
from vinedresser.tasks.places.run_place import RunPlace
from vinedresser.tasks.remedy.tags import PARENT_TAG, remedy_tags
from vinedresser.tasks.stores import ensure_store

__all__ = ["find_or_create", "prepare", "prepare_one", "rules_key"]

_log = logging.getLogger(__name__)


class _Launch(NamedTuple):
    """See `prepare_one`."""

    flow: str
    remedy: RemedyRecord | None
    patience: float


def rules_key(group: str) -> str:
    """Return the key of the rules that judge a run, for one group, and of what follows."""
    return f"rules/{group}.json"


def prepare(experiment: Experiment, *, flow: str) -> list[RunPlace]:
    """Make the run directory and the MLflow run of every spec; nothing is started.

    One process makes them all: several that create a fresh database at once break it.

    Args:
        experiment: what to make.
        flow: id of the flow run that they belong to.

    Returns:
        Where the runs are, in the order of the specs.

    Raises:
        TrackingError: MLflow's database or server refused.
        StoreError: the store refused.
    """
    ensure_store(experiment.store)
    uri = experiment.tracking_uri
    experiment_id = prepare_tracking(uri, experiment.tracking_experiment)
    tracking = TrackingRecord(uri, experiment_id, run_id="")
    return [prepare_one(experiment, spec, tracking, flow=flow) for spec in experiment.specs]


def prepare_one(
    experiment: Experiment,
    spec: RunSpec,
    tracking: TrackingRecord,
    *,
    flow: str,
    remedy: RemedyRecord | None = None,
    patience: float = 0.0,
) -> RunPlace:
    """Make the run directory and the MLflow run of a spec; nothing is started.

    Args:
        experiment: to which it belongs.
        spec: what to make.
        tracking: where MLflow is to keep it, which is prepared; without a run yet.
        flow: id of the flow run that it belongs to.
        remedy: of which stopped run it takes the place, if of any.
        patience: seconds for which its training goes on when this process is gone.

    Raises:
        TrackingError: MLflow's database or server refused.
        StoreError: the store refused.
    """
    place, run = _make_run(experiment, spec, _Launch(flow, remedy, patience))
    _make_mlflow_run(tracking, place, run)
    return place


def _make_run(experiment: Experiment, spec: RunSpec, launch: _Launch) -> tuple[RunPlace, RunRecord]:
    """Make a run under the first free name: NAME, NAME-2, NAME-3 and so on."""
    for number in itertools.count(1):
        name = spec.name if number == 1 else f"{spec.name}-{number}"
        try:
            place = _place(experiment, name)
            return place, _make_directory(experiment, spec, place, launch)
        except AlreadyARun:
            continue
    raise AssertionError("names never run out")


def _place(experiment: Experiment, name: str) -> RunPlace:
    """Return the place of a run that is to begin later; on an object store the name is taken."""
    store = experiment.store
    if experiment.runner != LOCAL:
        from vinedresser.tasks.places.cluster_place import ClusterPlace

        return ClusterPlace.make(store, name)
    if isinstance(store, Path):
        return RunPlace(store / name)
    return RemotePlace.make(reserve_url(store, name), _log.warning)


def _make_directory(
    experiment: Experiment, spec: RunSpec, place: RunPlace, launch: _Launch
) -> RunRecord:
    """Make a run that can be started."""
    environment = spec.environment
    if experiment.run.attach and experiment.runner == LOCAL:
        environment = environment | attach_environment(os.environ | environment)
    record = prepare_run(
        place.directory,
        name=place.name,
        argv=spec.argv,
        cwd=experiment.cwd,
        parameters=spec.parameters,
        total_steps=spec.total_steps,
        capture=experiment.capture.to_json(),
        needs=experiment.needs.to_json(),
        digest=experiment.capture.digest(),
        environment=environment,
        owner=this_process(),
        grace=experiment.run.grace,
        flow=launch.flow,
        remedy=launch.remedy,
        patience=launch.patience,
        gpus=experiment.run.gpus,
    )
    storage = LocalStorage(place.directory)
    for group, table in experiment.rules.items():
        judged = {"rules": table, "actions": experiment.actions}
        if experiment.suspicions:
            judged["suspicions"] = experiment.suspicions
        storage.put(rules_key(group), [json.dumps(judged, indent=1).encode()])
    return record


def _make_mlflow_run(tracking: TrackingRecord, place: RunPlace, run: RunRecord) -> None:
    """Make the MLflow run; the intention is on disk first, so that a kill in between is mended."""
    storage = LocalStorage(place.directory)
    write_record(storage, tracking)
    run_id = find_or_create(tracking, place.location, run)
    write_record(storage, replace(tracking, run_id=run_id))


def find_or_create(tracking: TrackingRecord, location: Location, run: RunRecord) -> str:
    """Return the id of the run's MLflow run, which is made unless it was made before.

    Raises:
        TrackingError: MLflow's database or server refused, or is away.
    """
    tags = {
        RUN_TAG: run.id,
        "vinedresser.directory": str(location),
        "mlflow.source.name": " ".join(run.command),
    }
    # A container may run us under a number that has no name.
    if user := os.environ.get("LOGNAME") or os.environ.get("USER"):
        tags["mlflow.user"] = user
    if tracking.parent:
        tags[PARENT_TAG] = tracking.parent
    tags |= remedy_tags(run)
    return create_run(
        tracking.uri,
        tracking.experiment_id,
        name=run.name,
        parameters=run.parameters,
        tags=tags | ({"prefect.flow_run": run.flow} if run.flow else {}),
        started=run.created,
    )
