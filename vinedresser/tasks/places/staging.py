"""What is prepared here of runs that belong on an object store and that workers of a cluster make.

They lie beside the sweep's journal, a folder for each, until they are over.
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
    """Return an empty folder for what is prepared of a run, whose name in the store is ours."""
    folder = local_state(store) / _FOLDER / name
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    return folder


def settle_unborn(staged: Path, location: str, reason: str) -> ExitRecord | None:
    """Bring what was prepared of a run that no worker has begun to its store, with its end.

    Args:
        staged: where it was prepared.
        location: where it belongs.
        reason: why it did not begin.

    Returns:
        Its end; None where it has begun.

    Raises:
        StoreError: a store refused.
    """
    prepared, storage = LocalStorage(staged), open_storage(location)
    if storage.exists(RunRecord.KEY):
        return None
    # A worker that comes later finds it taken.
    write_first(storage, WorkerRecord(asdict(this_process())))
    for key in prepared.list(""):
        storage.put(key, [prepared.get(key)])
    return write_first(storage, ExitRecord("killed", reason, time.time()))


def settle_staged(store: StoreUrl) -> None:
    """Settle what a killed flow had prepared on this machine, and no worker has begun.

    Args:
        store: on an object store.

    Raises:
        StoreError: the store refused.
    """
    root = local_state(store) / _FOLDER
    for staged in sorted(root.iterdir()) if root.is_dir() else ():
        if owner_is_gone(staged):
            settle_unborn(staged, store / staged.name, "prepared, but never started")
            shutil.rmtree(staged)
