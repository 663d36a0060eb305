"""End the runs that an earlier process left behind, or adopt those that still train."""

from __future__ import annotations

import os
import re
import time
from dataclasses import replace
from pathlib import Path

from vinedresser.errors import StillRunning, TrackingError, VinedresserError
from vinedresser.infra.catalog.known_tracking import with_known_uri
from vinedresser.infra.catalog.run_notes import stored_tracking
from vinedresser.infra.supervise.launcher import adopt
from vinedresser.objects import Location, open_storage
from vinedresser.plain_logs import plain_logger
from vinedresser.store.liveness import read_record_or_none
from vinedresser.store.reading.store_runs import run_directories
from vinedresser.store.records import (
    ExitRecord,
    RunRecord,
    TrackingRecord,
    read_record,
    write_record,
)
from vinedresser.tasks.lifecycle.additional_runs import equip_additional
from vinedresser.tasks.lifecycle.mlflow_metrics import send_metrics
from vinedresser.tasks.lifecycle.mlflow_run import original_of
from vinedresser.tasks.lifecycle.settle import end_of_run, settle_run

__all__ = ["adopt_living", "bring_to_end", "runs_of_trial", "settle_left"]

_log = plain_logger(__name__)

# Seconds beyond its grace for the end and upload of a run, and between two looks: ranks on other
# hosts notice the death of their supervisor after a minute, and count as gone after another one.
_PATIENCE, _LOOK = 120.0, 0.1


def adopt_living(store: Location) -> list[Path]:
    """Adopt the runs of a store that still train though their owner is gone, and return them.

    A run that cannot be read is logged and left out: the others continue for a minute only.
    """
    if not isinstance(store, Path):
        return []
    adopted = []
    for directory in run_directories(store):
        try:
            if adopt(directory):
                adopted.append(directory)
        except VinedresserError as error:
            _log.warning("%s: not adopted: %s", directory.name, error)
    return adopted


def runs_of_trial(store: Location, name: str) -> list[Location]:
    """Return the runs of a trial in the order in which they were made, NAME, NAME-2 and so on.

    A number may be missing, where something failed before there was a run.

    Args:
        store: store of the sweep.

    Raises:
        StoreError: the store refused a request.
    """
    storage = open_storage(store)
    numbers = {
        f"{name}{rest}": int(found[1] or 1)
        for rest in storage.folders(name)
        if (found := re.fullmatch(r"(?:-(\d+))?", rest))
    }
    folders = sorted(numbers, key=numbers.__getitem__)
    if isinstance(store, Path):
        # A run whose record is damaged was made, too.
        return [store / one for one in folders if os.path.lexists(store / one / RunRecord.KEY)]
    records = storage.get_many([f"{folder}/{RunRecord.KEY}" for folder in folders])
    made = [folder for folder, record in zip(folders, records, strict=True) if record is not None]
    return [store / folder for folder in made]


def bring_to_end(location: Location, grace: float) -> None:
    """Wait for the end of a run whose owner is gone, and settle it.

    Args:
        grace: seconds that it has for its checkpoint.

    Raises:
        StillRunning: it does not end.
        StoreError: it cannot be read.
    """
    deadline = time.monotonic() + grace + _PATIENCE
    while True:
        try:
            settle_left(location)
        except StillRunning:
            if time.monotonic() >= deadline:
                raise
            time.sleep(_LOOK)
        except TrackingError as error:
            _log.warning(
                "%s: MLflow does not know the end; `vinedresser reconcile` reports it: %s",
                location.name,
                error,
            )
            return
        else:
            return


def settle_left(location: Location) -> str:
    """Record the end of a run whose processes are gone, and report it to MLflow; idempotent.

    Returns:
        One sentence about what was done; "" for nothing.

    Raises:
        StillRunning: it has not ended.
        UntrustedTracking: its tracking URI is none of this user's; nothing was changed.
        TrackingError: MLflow's database or server refused or is unavailable.
        StoreError: it cannot be read.
    """
    storage = open_storage(location)
    faults: list[str] = []
    ended = read_record_or_none(storage, ExitRecord, ExitRecord.KEY, faults)
    was_over = ended is not None or bool(faults)
    read_record_or_none(storage, TrackingRecord, TrackingRecord.KEY, faults)
    tracking = stored_tracking(location, storage)
    settled = tracking is None or tracking.settled
    # Before anything is written: it may be a copy, or somebody else's.
    known = with_known_uri(location, tracking) if tracking and not settled else None
    run = read_record(storage, RunRecord) if known else None
    original = known and run and original_of(location, RunRecord, run.id, known)
    if isinstance(location, Path):
        equip_additional(location)
    end = end_of_run(location)
    if was_over and settled:
        return ""
    if tracking and original:
        # Not `mark_settled`: the note is the original's.
        write_record(storage, replace(tracking, settled=True))
        settle_run(location)
        return f"{end.cause}; MLflow's run is that of {original}, of which this is a copy"
    send_metrics(location)
    settle_run(location)
    said = f"{end.cause}; MLflow brought up to date" if was_over else f"{end.cause}: {end.reason}"
    return "; ".join((said, *faults))
