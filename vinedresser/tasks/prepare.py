"""Everything that must exist before the first training starts: run directories and MLflow runs."""

from __future__ import annotations

import itertools
import json
import os
from dataclasses import replace
from pathlib import Path

from vinedresser.errors import AlreadyARun
from vinedresser.infra.launcher import prepare_run
from vinedresser.infra.processes import this_process
from vinedresser.infra.run_directory import RunRecord, TrackingRecord, write_record
from vinedresser.infra.storage import LocalStorage
from vinedresser.infra.tracking import RUN_TAG, create_run, prepare_tracking
from vinedresser.tasks.experiment import Experiment, Plan

__all__ = ["find_or_create", "prepare", "rules_key"]


def rules_key(group: str) -> str:
    """Return the key of the rules that judge a run, for one group."""
    return f"rules/{group}.json"


def prepare(experiment: Experiment, *, flow: str) -> list[Path]:
    """Make the run directory and the MLflow run of every plan; nothing is started.

    One process makes them all: several that create a fresh database at once break it.

    Args:
        experiment: what to make.
        flow: id of the flow run that they belong to.

    Returns:
        The run directories, in the order of the plans.

    Raises:
        TrackingError: MLflow's database or server refused.
        StoreError: the store refused.
    """
    experiment.store.mkdir(parents=True, exist_ok=True)
    uri = experiment.tracking_uri
    experiment_id = prepare_tracking(uri, experiment.tracking_experiment)
    tracking = TrackingRecord(uri, experiment_id, run_id="")
    directories = []
    for plan in experiment.plans:
        directory, run = _make_directory(experiment, plan, flow)
        _make_mlflow_run(tracking, directory, run)
        directories.append(directory)
    return directories


def _make_directory(experiment: Experiment, plan: Plan, flow: str) -> tuple[Path, RunRecord]:
    """Make a run directory under the first free name: NAME, NAME-2, NAME-3 and so on."""
    for number in itertools.count(1):
        name = plan.name if number == 1 else f"{plan.name}-{number}"
        directory = experiment.store / name
        try:
            record = prepare_run(
                directory,
                name=name,
                argv=plan.argv,
                cwd=experiment.cwd,
                parameters=plan.parameters,
                total_steps=plan.total_steps,
                capture=experiment.capture.to_json(),
                needs=experiment.needs.to_json(),
                digest=experiment.capture.digest(),
                environment=plan.environment,
                owner=this_process(),
                grace=experiment.run.grace,
                flow=flow,
            )
        except AlreadyARun:
            continue
        storage = LocalStorage(directory)
        for group, table in experiment.rules.items():
            storage.put(rules_key(group), [json.dumps({"rules": table}, indent=1).encode()])
        return directory, record
    raise AssertionError("names never run out")


def _make_mlflow_run(tracking: TrackingRecord, directory: Path, run: RunRecord) -> None:
    """Make the MLflow run; the intention is on disk first, so that a kill in between is mended."""
    storage = LocalStorage(directory)
    write_record(storage, tracking)
    write_record(storage, replace(tracking, run_id=find_or_create(tracking, directory, run)))


def find_or_create(tracking: TrackingRecord, directory: Path, run: RunRecord) -> str:
    """Return the id of the run's MLflow run, which is made unless it was made before.

    Raises:
        TrackingError: MLflow's database or server refused, or is away.
    """
    tags = {
        RUN_TAG: run.id,
        "vinedresser.directory": str(directory),
        "mlflow.source.name": " ".join(run.command),
    }
    # A container may run us under a number that has no name.
    if user := os.environ.get("LOGNAME") or os.environ.get("USER"):
        tags["mlflow.user"] = user
    return create_run(
        tracking.uri,
        tracking.experiment_id,
        name=run.name,
        parameters=run.parameters,
        tags=tags | ({"prefect.flow_run": run.flow} if run.flow else {}),
        started=run.created,
    )
