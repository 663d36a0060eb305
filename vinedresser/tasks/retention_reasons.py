"""Why a run, or a sweep or pruning with its runs, has to stay; a pin says so."""

from __future__ import annotations

import time
from pathlib import Path

from vinedresser.infra.catalog.known_tracking import read_tracking, require_known
from vinedresser.infra.catalog.stores import is_owned, local_state
from vinedresser.infra.services.tracking.client import connected
from vinedresser.objects import LocalStorage, Location, Storage, open_storage
from vinedresser.processes import user_name
from vinedresser.store.reading.store_runs import run_record, runs_in
from vinedresser.store.records import (
    ExitRecord,
    ParentRecord,
    PinRecord,
    TrackingRecord,
    read_record,
    write_record,
)
from vinedresser.store.spool import spools
from vinedresser.store.status import Status, run_status
from vinedresser.tasks.config.retention_file import What
from vinedresser.tasks.parents.kinds import is_held, is_joined, kind_of

__all__ = ["pin", "reason_to_keep", "reason_to_keep_parent", "unpin"]


def pin(location: Location, why: str) -> None:
    """Keep a run, or a sweep or pruning with its runs, for good.

    Args:
        why: why, or "".

    Raises:
        NotARun: it is neither.
        StoreError: the store refused.
    """
    storage = _pins(location)
    if kind_of(location) is None:
        run_record(storage)
    write_record(storage, PinRecord(why, user_name(), time.time()))


def unpin(location: Location) -> None:
    """Let it be removed again; do nothing if it is not pinned.

    Raises:
        StoreError: the store refused.
    """
    _pins(location).delete(PinRecord.KEY)


def _pins(location: Location) -> Storage:
    """Return where a pin is: in the run, or in the state of the sweep or pruning."""
    if kind_of(location) is None:
        return open_storage(location)
    return LocalStorage(local_state(location))


def reason_to_keep_parent(
    location: Location, kind: type[ParentRecord], record: ParentRecord, *, ours: bool = False
) -> str:
    """Return why a sweep or pruning must stay with its runs; "" if it need not.

    Args:
        ours: this process has the lock of its folder.

    Raises:
        CorruptData: a record that says so is damaged.
        StoreError: the store refused.
        TrackingError: MLflow cannot be asked whether a model of it is registered.
    """
    state = local_state(location)
    if pinned := _pinned(LocalStorage(state)):
        return pinned
    if isinstance(location, Path) and location.is_symlink():
        return "it is a link"
    if is_joined(state) if ours else is_held(state, kind):
        return "a process runs it"
    tracking = TrackingRecord(
        require_known(location, record.tracking_uri),
        record.experiment_id,
        record.run_id,
        settled=bool(record.end) and record.settled,
    )
    if reason := _needed_by_mlflow(tracking, "runs"):
        return reason
    for run in runs_in(location):
        storage = open_storage(run)
        if reason := reason_to_keep(run, storage, run_status(storage), "runs"):
            return f"{run.name}: {reason}"
    return ""


def _pinned(storage: Storage) -> str:
    """Return who pinned what a storage holds, and why; "" if nobody has."""
    record = read_record(storage, PinRecord)
    if record is None:
        return ""
    by = f" by {record.user}" if record.user else ""
    return f"pinned{by}" + (f": {record.why}" if record.why else "")


def reason_to_keep(location: Location, storage: Storage, status: Status, what: What) -> str:
    """Return why a run, or its snapshots or checkpoints, must stay; "" if they need not.

    Raises:
        CorruptData: a record that says so is damaged.
        StoreError: the store refused.
        TrackingError: MLflow cannot be asked whether a model of it is registered.
    """
    if pinned := _pinned(storage):
        return pinned
    if isinstance(location, Path) and location.is_symlink():
        return "it is a link"
    if not status.over or is_owned(location) or not storage.exists(ExitRecord.KEY):
        return "it has not ended, or nothing has recorded its end"
    if not isinstance(location, Path) and spools(str(location)):
        return "its data is not uploaded yet"
    tracking = read_tracking(location)
    return _needed_by_mlflow(tracking, what) if tracking is not None else ""


def _needed_by_mlflow(tracking: TrackingRecord, what: What) -> str:
    if not tracking.settled:
        return "MLflow does not know its end: vinedresser reconcile"
    name = "" if what == "snapshots" else _registered(tracking)
    return f"the registered model {name} is from it" if name else ""


def _registered(tracking: TrackingRecord) -> str:
    """Return the name of a registered model of a run; "" if there is none."""
    with connected(tracking.uri) as client:
        found = client.search_model_versions(f"run_id = '{tracking.run_id}'")
    return str(found[0].name) if found else ""
