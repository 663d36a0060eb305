"""The runs of a store: a directory of run directories, or the same on an object store."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

from vinedresser.objects import Location, StoreUrl, open_storage
from vinedresser.store.records import RunRecord

__all__ = ["remote_runs", "run_directories", "runs_in"]


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
