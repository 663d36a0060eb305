"""The sweeps and prunings that a store has."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

from vinedresser.errors import StoreError, VinedresserError
from vinedresser.infra.catalog.stores import local_state
from vinedresser.objects import LocalStorage, Location, Storage, open_storage
from vinedresser.objects.base import TEMPORARY
from vinedresser.objects.file_lock import is_file_locked
from vinedresser.objects.files import is_missing
from vinedresser.pruning.spec import PruningRecord
from vinedresser.store.records import ParentRecord, RunRecord, read_record
from vinedresser.sweeps.spec import FLOWS, SweepRecord

__all__ = [
    "KINDS",
    "is_held",
    "is_joined",
    "is_removed",
    "kind_of",
    "parent_at",
    "parent_state",
    "parents_in",
]

KINDS: tuple[type[ParentRecord], ...] = (SweepRecord, PruningRecord)


def parents_in(store: Location) -> Sequence[Location]:
    """Return the stores of the sweeps and prunings in a store that this machine knows.

    Raises:
        StoreError: the store refused a request.
    """
    # The folder of one that is being removed has a temporary name.
    names = [name for name in open_storage(store).folders() if not name.startswith(TEMPORARY)]
    return [store / name for name in names if kind_of(store / name) is not None]


def kind_of(store: Location) -> type[ParentRecord] | None:
    """Return whether a store is a sweep's or a pruning's; None if it is neither's."""
    state = local_state(store)
    if os.path.lexists(state / RunRecord.KEY):
        # A training may write anything into its run.
        return None
    # What is no file is a damaged record, not a missing one.
    return next((kind for kind in KINDS if os.path.lexists(state / kind.KEY)), None)


def parent_at(location: Location) -> tuple[type[ParentRecord], Storage] | None:
    """Return what a sweep or pruning is, and where its own files are; None if it is neither.

    On an object store, a copy that another machine has made is one, too.

    Raises:
        StoreError: the store refused a request.
    """
    if (kind := kind_of(location)) is not None:
        return kind, LocalStorage(local_state(location))
    storage = open_storage(location)
    if isinstance(location, Path) or storage.exists(RunRecord.KEY):
        return None
    return next(((kind, storage) for kind in KINDS if storage.exists(kind.KEY)), None)


def parent_state(store: Location, kind: type[ParentRecord]) -> str:
    """Return how a sweep or pruning stands: "running"; its end, such as "finished"; or "dead".

    A dead one has no process, and none recorded its end.

    Raises:
        CorruptData: its record cannot be read.
        StoreError: the folder of its state cannot be read.
    """
    state = local_state(store)
    record = read_record(LocalStorage(state), kind)
    if record is not None and "status" in record.end:
        return str(record.end["status"]).lower()
    return "running" if is_held(state, kind) else "dead"


def is_held(state: Path, kind: type[ParentRecord]) -> bool:
    """Return whether a living process runs the sweep or pruning of a folder.

    Raises:
        StoreError: the folder cannot be read, or has no locks.
    """
    return _is_locked(state / kind.LOCK) or is_joined(state)


def is_joined(state: Path) -> bool:
    """Return whether a living process runs trials of the sweep of a folder, with or without host.

    Raises:
        StoreError: the folder cannot be read, or has no locks.
    """
    flows = LocalStorage(state).list(f"{FLOWS}/")
    return any(_is_locked(state / flow) for flow in flows)


def _is_locked(path: Path) -> bool:
    try:
        return is_file_locked(path)
    except VinedresserError:
        raise
    except OSError as error:
        raise StoreError(f"{path}: {error.strerror}") from error


def is_removed(state: Path, kind: type[ParentRecord]) -> bool:
    """Return whether the folder of one that has begun was removed."""
    return is_missing(state / kind.KEY)
