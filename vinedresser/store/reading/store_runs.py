"""The runs of a store: a directory of run directories, or the same on an object store."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

from vinedresser.errors import NotARun, did_you_mean
from vinedresser.objects import Location, Storage, StoreUrl, open_storage, parse_location
from vinedresser.store.records import RunRecord, read_record

__all__ = ["remote_runs", "run_directories", "run_record", "runs_in", "runs_nearby"]


def run_directories(store: Path) -> list[Path]:
    """Return the run directories in a store, sorted; the store itself if it is a run."""
    # A link or a FIFO in place of a record is a damaged record, not a missing one.
    if os.path.lexists(store / RunRecord.KEY):
        return [store]
    try:
        inner = [store / name for name in os.listdir(store)]
    except (FileNotFoundError, NotADirectoryError):
        return []
    return sorted(one for one in inner if os.path.lexists(one / RunRecord.KEY))


def remote_runs(store: StoreUrl) -> list[StoreUrl]:
    """Return the runs in a store on an object store, sorted; the store itself if it is a run.

    Args:
        store: ``s3://bucket/prefix``.

    Raises:
        StoreError: the store refused.
    """
    storage = open_storage(store)
    if storage.exists(RunRecord.KEY):
        return [store]
    folders = storage.folders()
    found = storage.get_many([f"{folder}/{RunRecord.KEY}" for folder in folders])
    return [
        store / folder for folder, record in zip(folders, found, strict=True) if record is not None
    ]


def runs_in(store: Location) -> Sequence[Location]:
    """Return the runs in a store, sorted; the store itself if it is a run.

    Raises:
        StoreError: the store refused.
    """
    return run_directories(store) if isinstance(store, Path) else remote_runs(store)


def run_record(storage: Storage) -> RunRecord:
    """Return the record of a run.

    Raises:
        CorruptData: it is damaged.
        NotARun: there is none; the message says what may have been meant.
        StoreError: the storage refused.
    """
    record = read_record(storage, RunRecord)
    if record is None:
        near = runs_nearby(parse_location(storage.location))
        raise NotARun(f"{storage.location}: not a run: there is no {RunRecord.KEY}{near}")
    return record


def runs_nearby(place: Location) -> str:
    """Return what was meant by a place that is not a run, such as "; did you mean a, b?"; or "".

    Args:
        place: the place that a user gave; only a local one is looked at.
    """
    if not isinstance(place, Path):
        return ""
    if inner := run_directories(place):
        number = f"{len(inner):,} runs" if len(inner) > 1 else "1 run"
        return f"; it is a store of {number}, such as {inner[0]}"
    try:
        with os.scandir(place.parent) as entries:
            known = sorted(entry.name for entry in entries if entry.is_dir())
    except OSError:
        return ""
    return "" if place.name in known else did_you_mean(place.name, known)
