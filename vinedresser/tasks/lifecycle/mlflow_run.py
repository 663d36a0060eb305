"""The MLflow run of a run: found or created, and ended if the run directory was removed."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from vinedresser.errors import StoreError
from vinedresser.infra.catalog.known_tracking import require_known
from vinedresser.infra.catalog.run_notes import RunNote, forget_run, note_run
from vinedresser.infra.catalog.tracking_uri import sqlite_path
from vinedresser.infra.services.tracking import (
    DIRECTORY_TAG,
    RUN_TAG,
    create_run,
    directory_of,
    finish,
)
from vinedresser.infra.services.tracking.runs import PARENT_NAME_TAG
from vinedresser.masking import masked_arguments
from vinedresser.objects import LocalStorage, Location, Storage
from vinedresser.processes import user_name
from vinedresser.store.liveness import read_record_or_none
from vinedresser.store.records import (
    ParentRecord,
    RemedyRecord,
    RestartRecord,
    RunRecord,
    TrackingRecord,
    write_record,
)
from vinedresser.tasks.places.run_place import RunPlace

__all__ = ["begin_tracking", "end_removed", "find_or_create", "original_of"]

# MLflow's own tag: its table nests a run under the run that this names.
_PARENT_TAG = "mlflow.parentRunId"


def begin_tracking(
    place: RunPlace, storage: Storage, run: RunRecord, tracking: TrackingRecord
) -> None:
    """Create the MLflow run of a run that is prepared, and note it.

    Args:
        storage: its directory.
        tracking: where MLflow keeps it, without a run.

    Raises:
        TrackingError: MLflow's database or server refused or is unavailable.
        StoreError: the directory cannot be written.
    """
    # The intention is on disk first, so that a kill in between can be repaired.
    write_record(storage, tracking)
    run_id = find_or_create(tracking, place.location, run, new=True)
    place.tracking = replace(tracking, run_id=run_id)
    write_record(storage, place.tracking)
    if not place.elsewhere:
        note_run(place.location, run.id, place.tracking)


def find_or_create(
    tracking: TrackingRecord, location: Location, run: RunRecord, *, new: bool = False
) -> str:
    """Return the id of a run's MLflow run; create the MLflow run unless it exists.

    Args:
        tracking: where MLflow keeps the run.
        new: the MLflow run cannot exist yet.

    Raises:
        TrackingError: MLflow's database or server refused or is unavailable.
    """
    tags = {
        RUN_TAG: run.id,
        DIRECTORY_TAG: str(location),
        **_source_tags(run),
        **_remedy_tags(run),
        **_restart_tags(run),
    }
    if user := user_name():
        tags["mlflow.user"] = user
    if tracking.parent:
        tags |= {_PARENT_TAG: tracking.parent, PARENT_NAME_TAG: location.parent.name}
    if run.flow:
        tags["prefect.flow_run"] = run.flow
    return create_run(
        tracking.uri,
        tracking.experiment_id,
        name=run.name,
        parameters={**run.parameters, **_data_parameters(run)},
        tags=tags,
        data=run.data,
        started=run.created,
        new=new,
    )


def original_of(
    location: Location,
    kind: type[RunRecord | ParentRecord],
    own_id: str,
    tracking: TrackingRecord,
    *,
    timeout: float | None = 60.0,
) -> Path | None:
    """Return the directory that another program copied to here, with its id and MLflow run.

    A directory that was moved has no original.

    Args:
        location: a run, or the store of a sweep or pruning.
        kind: the class of its record.
        tracking: where MLflow keeps it.
        timeout: see `directory_of`.

    Raises:
        TrackingError: MLflow's database or server refused or is unavailable.
        StoreError: the original cannot be read.
    """
    if not isinstance(location, Path):
        return None
    found = directory_of(tracking.uri, tracking.experiment_id, own_id, timeout=timeout)
    made = Path(found)
    try:
        if not made.is_absolute() or not made.is_dir() or made.samefile(location):
            return None
    except OSError as error:
        raise StoreError(f"{made}: cannot be looked up: {error.strerror}") from error
    other = read_record_or_none(LocalStorage(made), kind, kind.KEY, [])
    return made if other is not None and other.id == own_id else None


def end_removed(
    location: Location, tracking: TrackingRecord, kind: type[RunNote] = RunNote
) -> None:
    """End the MLflow run of a run whose directory was removed, and remove the note on it.

    Raises:
        UntrustedTracking: see `require_known`.
        TrackingError: MLflow's database or server refused or is unavailable.
    """
    uri = require_known(kind.store_of(location), tracking.uri)
    database = sqlite_path(uri)
    # A database that was removed with the store would be created again.
    if database is None or database.exists():
        finish(uri, tracking.run_id, "KILLED", kind.END, {})
    forget_run(location, tracking, kind)


def _source_tags(run: RunRecord) -> dict[str, str]:
    """Return MLflow's own tags for the program and its code."""
    tags = {
        "mlflow.source.name": " ".join(masked_arguments(run.command)),
        "mlflow.source.type": "LOCAL",
        "mlflow.source.git.commit": run.code.removesuffix("-dirty"),
        "mlflow.source.git.branch": run.branch,
        "mlflow.source.git.repoURL": run.repository,
        "code.revision": run.code,
    }
    return {name: value for name, value in tags.items() if value}


def _data_parameters(run: RunRecord) -> dict[str, str | list[str]]:
    """Return the sources of each channel as a parameter."""
    return {
        f"data.{name}": sources[0] if len(sources) == 1 else sources
        for name, sources in run.data.items()
    }


def _remedy_tags(run: RunRecord) -> dict[str, str]:
    """Return how an attempt differs from the stopped run that it replaces; {} for other runs."""
    if not run.remedy:
        return {}
    remedy = RemedyRecord.from_json(run.remedy)
    return {
        "remedy.of": remedy.first,
        "remedy.attempt": str(remedy.attempt),
        "remedy.stopped": remedy.stopped,
        "remedy.rule": remedy.finding["rule"],
        "remedy.reason": remedy.finding["seen"],
        "remedy.changed": remedy.change,
        "remedy.begins": remedy.beginning,
        **({"remedy.tried": remedy.tried} if remedy.tried else {}),
    }


def _restart_tags(run: RunRecord) -> dict[str, str]:
    """Return which failed run a run begins again, and how; {} for other runs."""
    if not run.restart:
        return {}
    restart = RestartRecord.from_json(run.restart)
    return {
        "restart.of": restart.first,
        "restart.number": str(restart.number),
        "restart.failed": restart.failed,
        "restart.begins": restart.begins,
        **({"restart.ranks": restart.fewer} if restart.fewer else {}),
    }
