"""MLflow's run of a sweep: it is told of the end whatever becomes of the process that saw it."""

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
from vinedresser.tasks.stores import local_state

__all__ = ["JOURNAL", "PAGE", "end_sweep", "go_on_with", "settle_sweep", "sweeps_in"]

# Beside the trials, on this machine.
JOURNAL, PAGE = "journal.log", "sweep.html"
_GONE = "the process that ran it is gone"


def sweeps_in(store: Location) -> Sequence[Location]:
    """Return the stores of the sweeps in a store, those that this machine knows of.

    Raises:
        StoreError: the store refused.
    """
    if isinstance(store, Path):
        return sorted(path.parent for path in store.glob(f"*/{SweepRecord.KEY}"))
    inner = [store / folder for folder in open_storage(store).folders()]
    return [one for one in inner if (local_state(one) / SweepRecord.KEY).is_file()]


def go_on_with(record: SweepRecord, state: Path) -> None:
    """Have MLflow's run of a sweep say again that it runs.

    Args:
        record: of the sweep.
        state: its folder on this machine.

    Raises:
        TrackingError: MLflow's database or server refused.
    """
    # First: should we be killed in between, it is settled again.
    write_record(LocalStorage(state), replace(record, end={}, settled=False))
    reopen(record.tracking_uri, record.run_id)


def end_sweep(state: Path, status: RunStatus, tags: Mapping[str, object]) -> None:
    """Give MLflow's run of a sweep its tags, the page about it, and its status.

    What it is told is on disk first: should that fail, `reconcile` tells it.

    Args:
        state: its folder on this machine, which has the page.
        status: what the run ends as.
        tags: by name; a value of None is left out.

    Raises:
        TrackingError: MLflow's database or server refused.
        StoreError: the folder refused.
    """
    storage = LocalStorage(state)
    record = read_record(storage, SweepRecord)
    assert record is not None, "it has begun"
    end = {"status": status, "tags": dict(tags), "time": time.time()}
    record = replace(record, end=end)
    write_record(storage, record)
    _tell(record, state)


def settle_sweep(state: Path) -> str:
    """Tell MLflow of the end of a sweep that nobody runs any more; twice is harmless.

    Args:
        state: a folder that may be a sweep's.

    Returns:
        What was done, "" for nothing.

    Raises:
        TrackingError: MLflow's database or server refused, or is away.
        CorruptData: its record cannot be read.
        StoreError: the folder refused.
    """
    record = read_record(LocalStorage(state), SweepRecord)
    if record is None or record.settled or is_held(state / JOURNAL):
        return ""
    if not record.end:
        record = replace(record, end={"status": "KILLED", "tags": {"sweep.over": _GONE}})
    _tell(record, state)
    return f"{record.end['status'].lower()}; MLflow brought up to date"


def _tell(record: SweepRecord, state: Path) -> None:
    # One that was killed before it had noted the run: it is found, or made, by its tag.
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
    write_record(LocalStorage(state), replace(record, settled=True))
