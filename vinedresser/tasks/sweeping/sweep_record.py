"""MLflow's run of a sweep: it gets the end even if the process that saw it dies."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from vinedresser.infra.tracking import RUN_TAG, RunStatus, create_run, finish, reopen
from vinedresser.store.records import read_record, write_record
from vinedresser.store.storage import LocalStorage, Location, open_storage
from vinedresser.sweeps.journal_lock import is_held
from vinedresser.sweeps.spec import SweepRecord
from vinedresser.tasks.known_tracking import require_known
from vinedresser.tasks.stores import local_state
from vinedresser.tasks.sweeping.sweep_notes import forget_sweep

__all__ = [
    "JOURNAL",
    "PAGE",
    "end_sweep",
    "resume_sweep",
    "settle_sweep",
    "sweep_state",
    "sweeps_in",
]

# Beside the trials, on this machine.
JOURNAL, PAGE = "journal.log", "sweep.html"
_GONE = "the process that ran it is gone"


def sweeps_in(store: Location) -> Sequence[Location]:
    """Return the stores of the sweeps in a store that this machine knows.

    Raises:
        StoreError: the store refused a request.
    """
    if isinstance(store, Path):
        return sorted(path.parent for path in store.glob(f"*/{SweepRecord.KEY}"))
    inner = [store / folder for folder in open_storage(store).folders()]
    return [one for one in inner if (local_state(one) / SweepRecord.KEY).is_file()]


def sweep_state(store: Location) -> str:
    """Return how a sweep stands, in one word: "running"; its end, such as "finished"; or "dead".

    A dead sweep has no process, and none recorded its end.

    Raises:
        CorruptData: its record cannot be read.
        StoreError: the folder of its state cannot be read.
    """
    state = local_state(store)
    record = read_record(LocalStorage(state), SweepRecord)
    if record is not None and "status" in record.end:
        return str(record.end["status"]).lower()
    return "running" if is_held(state / JOURNAL) else "dead"


def resume_sweep(record: SweepRecord, state: Path) -> None:
    """Set MLflow's run of a sweep to running again.

    Args:
        record: record of the sweep.
        state: its folder on this machine.

    Raises:
        TrackingError: MLflow's database or server refused.
    """
    # First: after a kill in between it is settled again.
    write_record(LocalStorage(state), replace(record, end={}, settled=False))
    reopen(record.tracking_uri, record.run_id)


def end_sweep(store: Location, status: RunStatus, tags: Mapping[str, object]) -> None:
    """Give MLflow's run of a sweep its tags, the page about it, and its status.

    They are on disk first: if MLflow fails, `reconcile` sends them.

    Args:
        store: store of its trials.
        status: final status of the run.
        tags: values by name; None is left out.

    Raises:
        TrackingError: MLflow's database or server refused.
        StoreError: the folder cannot be written.
    """
    state = local_state(store)
    storage = LocalStorage(state)
    record = read_record(storage, SweepRecord)
    assert record is not None, "it has begun"
    record = replace(record, tracking_uri=require_known(store, record.tracking_uri))
    end = {"status": status, "tags": dict(tags), "time": time.time()}
    record = replace(record, end=end)
    write_record(storage, record)
    _tell(record, store)


def settle_sweep(store: Location) -> str:
    """Give MLflow's run of a sweep that no process runs its end; idempotent.

    Args:
        store: a store that may be a sweep's.

    Returns:
        One sentence about what was done; "" for nothing.

    Raises:
        UntrustedTracking: its tracking URI is none of this user's; nothing was changed.
        TrackingError: MLflow's database or server refused or is unavailable.
        CorruptData: its record cannot be read.
        StoreError: the folder cannot be read or written.
    """
    state = local_state(store)
    record = read_record(LocalStorage(state), SweepRecord)
    if record is None or record.settled or is_held(state / JOURNAL):
        return ""
    record = replace(record, tracking_uri=require_known(store, record.tracking_uri))
    if not record.end:
        record = replace(record, end={"status": "KILLED", "tags": {"sweep.over": _GONE}})
    _tell(record, store)
    return f"{record.end['status'].lower()}; MLflow brought up to date"


def _tell(record: SweepRecord, store: Location) -> None:
    state = local_state(store)
    # A sweep killed before it recorded the run: it is found or created by its tag.
    run_id = record.run_id or create_run(
        record.tracking_uri, record.experiment_id, record.name, {}, {RUN_TAG: record.id}
    )
    page = state / PAGE
    finish(
        record.tracking_uri,
        run_id,
        record.end["status"],
        record.end["tags"],
        {PAGE: page} if page.is_file() else {},
        ended=record.end.get("time", time.time()),
    )
    write_record(LocalStorage(state), replace(record, run_id=run_id, settled=True))
    forget_sweep(store, replace(record, run_id=run_id))
