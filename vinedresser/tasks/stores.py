"""The runs in a store: a directory with one run directory each, or the same on an object store."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from vinedresser.errors import ConfigError
from vinedresser.infra.state_folder import store_state_folder
from vinedresser.infra.tracking.location import sqlite_path
from vinedresser.processes import ProcessIdentity, is_alive, this_process
from vinedresser.store.records import (
    ClaimRecord,
    LaunchRecord,
    RunRecord,
    TrackingRecord,
    owner_of,
    read_record,
)
from vinedresser.store.storage import Location, StoreUrl, open_storage
from vinedresser.store.storage.spool import spools

__all__ = [
    "ensure_store",
    "is_owned",
    "local_state",
    "owned_here",
    "owner_is_gone",
    "places_in",
    "remote_runs",
    "run_directories",
    "runs_in",
    "tracking",
]


def local_state(store: Location) -> Path:
    """Return the folder on this machine for what a flow keeps beside the runs of a store.

    That is the store itself, unless it is an object store.
    """
    return store if isinstance(store, Path) else store_state_folder(store)


def ensure_store(store: Location) -> None:
    """Make a store ready to be written to, and the folder of its state here.

    Raises:
        ConfigError: it is a URL without a bucket.
        MissingDependency: it is on S3, and a package for that is not installed.
        StoreError: there is no such bucket, no server, or no permission.
        OSError: the folder cannot be made.
    """
    if not isinstance(store, Path):
        # A request that fails where there is no bucket, which a look for one object does not.
        open_storage(store).list(RunRecord.KEY)
    local_state(store).mkdir(parents=True, exist_ok=True)


def run_directories(store: Path) -> list[Path]:
    """Return the run directories in a store, or the store itself where it is a run; sorted."""
    if (store / "run.json").is_file():
        return [store]
    return sorted(record.parent for record in store.glob("*/run.json"))


def remote_runs(store: StoreUrl) -> list[StoreUrl]:
    """Return the runs in a store on an object store, or the store itself where it is one; sorted.

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
    """Return the runs in a store, or the store itself where it is one; sorted.

    Raises:
        StoreError: the store refused.
    """
    return run_directories(store) if isinstance(store, Path) else remote_runs(store)


def places_in(store: Location) -> Sequence[Location]:
    """Return where there are runs in a store, or are about to be; of an object store one request.

    Raises:
        StoreError: the store refused.
    """
    if isinstance(store, Path):
        return run_directories(store)
    return [store / folder for folder in open_storage(store).folders()]


def is_owned(location: Location) -> bool:
    """Say whether the process for which a run was made may be alive, and will see to it itself.

    Raises:
        CorruptData: its launch record is not readable.
        StoreError: the store refused.
    """
    owner = _owner(location)
    # On another machine nobody can tell from here.
    return owner is not None and is_alive(owner) is not False


def owner_is_gone(location: Location) -> bool:
    """Say whether a run was made for a process of this machine that is no more.

    Raises:
        CorruptData: its launch record is not readable.
        StoreError: the store refused.
    """
    owner = _owner(location)
    return owner is not None and is_alive(owner) is False


def owned_here(store: Location) -> list[Path]:
    """Return the directories of the runs of a store that were made for this very process.

    Of runs on an object store these are the spools.

    Raises:
        CorruptData: a launch record is not readable.
    """
    here = this_process()
    directories = run_directories(store) if isinstance(store, Path) else spools(store)
    return [directory for directory in directories if _owner(directory) == here]


def tracking(store: Location) -> TrackingRecord:
    """Return where MLflow keeps the runs of a store: the tracking record of one of them.

    Raises:
        ConfigError: none of them is tracked, or MLflow's database is not on this machine.
        StoreError: the store refused.
    """
    for location in runs_in(store):
        record = read_record(open_storage(location), TrackingRecord)
        if record is not None:
            _check_database(record.uri, store)
            return record
    raise ConfigError(f"{store}: no run in it is tracked by MLflow; `vinedresser train` does that")


def _check_database(uri: str, store: Location) -> None:
    """Refuse a database that is not on this machine: MLflow would make an empty one."""
    path = sqlite_path(uri)
    if path is not None and not path.exists():
        raise ConfigError(
            f"{path}: no such file; MLflow's database of {store} is gone, or on another machine"
        )


def _owner(location: Location) -> ProcessIdentity | None:
    storage = open_storage(location)
    owner = owner_of(storage)
    launched = owner is not None or storage.exists(LaunchRecord.KEY)
    if not launched and storage.exists(ClaimRecord.KEY):
        # A further training's: what launched its script launched the first one's run.
        first = str(location).rpartition(".")[0]
        owner = owner_of(open_storage(first))
    return ProcessIdentity(**owner) if owner is not None else None
