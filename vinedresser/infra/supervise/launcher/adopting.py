"""Adopt a run whose owner is gone, before it stops because it has no owner."""

from __future__ import annotations

import os
from dataclasses import asdict
from pathlib import Path

from vinedresser.objects import LocalStorage
from vinedresser.processes import ProcessIdentity, is_alive, this_process
from vinedresser.store.records import (
    ExitRecord,
    LaunchRecord,
    OwnerRecord,
    StopRecord,
    owner_of,
    read_record,
    run_lock,
    write_record,
)


def adopt(directory: str | os.PathLike[str]) -> bool:
    """Become the owner of a run that still trains though its owner is gone.

    Only one process at a time may try; that of a sweep holds the journal.

    Returns:
        Whether the run continues for the calling process; otherwise it is over or about to end. A
        run that ends at the same moment is adopted, and still ends as stopped by "owner".

    Raises:
        CorruptData: a record cannot be read.
        StoreError: the directory cannot be read or written.
    """
    path = Path(directory)
    storage = LocalStorage(path)
    launch = read_record(storage, LaunchRecord)
    owner = owner_of(storage)
    if launch is None or owner is None or not launch.patience or not _continues(path, storage):
        return False
    if ProcessIdentity(**owner) == this_process():
        return True
    if is_alive(ProcessIdentity(**owner)) is not False:
        return False
    write_record(storage, OwnerRecord(asdict(this_process())))
    return _continues(path, storage)


def _continues(path: Path, storage: LocalStorage) -> bool:
    over = storage.exists(StopRecord.KEY) or storage.exists(ExitRecord.KEY)
    return not over and run_lock.is_held(path)
