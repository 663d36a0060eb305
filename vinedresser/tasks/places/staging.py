"""Runs prepared on this machine that workers of a cluster make and that belong on an object store.

Each has a folder in the state of its store until it is over.
"""

from __future__ import annotations

import shutil
import time
from dataclasses import asdict
from pathlib import Path

from vinedresser.processes import this_process
from vinedresser.store.records import ExitRecord, RunRecord, WorkerRecord, write_first
from vinedresser.store.storage import LocalStorage, StoreUrl, open_storage
from vinedresser.tasks.stores import local_state, owner_is_gone

__all__ = ["settle_staged", "settle_unborn", "stage"]

_FOLDER = "staged"


def stage(store: StoreUrl, name: str) -> Path:
    """Return an empty folder in which to prepare a run; its name in the store is reserved."""
    folder = local_state(store) / _FOLDER / name
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    return folder


def settle_unborn(staged: Path, location: str, reason: str) -> ExitRecord | None:
    """End a prepared run that no worker has begun, in its store.

    Args:
        staged: folder in which it was prepared.
        location: location at which readers find it.
        reason: why it did not begin.

    Returns:
        How it ended; None if it has begun.

    Raises:
        StoreError: a store refused a request.
    """
    prepared, storage = LocalStorage(staged), open_storage(location)
    if storage.exists(RunRecord.KEY):
        return None
    # A worker that begins later finds it taken.
    write_first(storage, WorkerRecord(asdict(this_process())))
    for key in prepared.list(""):
        storage.put(key, [prepared.get(key)])
    return write_first(storage, ExitRecord("killed", reason, time.time()))


def settle_staged(store: StoreUrl) -> None:
    """Settle the runs that a killed flow prepared on this machine and no worker has begun.

    Args:
        store: URL of the store.

    Raises:
        StoreError: the store refused a request.
    """
    root = local_state(store) / _FOLDER
    for staged in sorted(root.iterdir()) if root.is_dir() else ():
        if owner_is_gone(staged):
            settle_unborn(staged, store / staged.name, "prepared, but never started")
            shutil.rmtree(staged)
