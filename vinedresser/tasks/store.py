"""The runs in a store: a directory with one run directory each."""

from __future__ import annotations

from pathlib import Path

from vinedresser.errors import ConfigError
from vinedresser.infra.processes import ProcessIdentity, is_alive, this_process
from vinedresser.infra.run_directory import (
    LaunchRecord,
    RunRecord,
    TrackingRecord,
    read_record,
)
from vinedresser.infra.storage import LocalStorage, open_storage

__all__ = ["is_owned", "owned_here", "remote_runs", "run_directories", "tracking"]


def run_directories(store: Path) -> list[Path]:
    """Return the run directories in a store, or the store itself where it is a run; sorted."""
    if (store / "run.json").is_file():
        return [store]
    return sorted(record.parent for record in store.glob("*/run.json"))


def remote_runs(store: str) -> list[str]:
    """Return the runs in a store on an object store, or the store itself where it is one; sorted.

    Args:
        store: ``s3://bucket/prefix``.

    Raises:
        StoreError: the store refused.
    """
    storage = open_storage(store)
    if storage.exists(RunRecord.KEY):
        return [storage.location]
    folders = storage.folders()
    found = storage.get_many([f"{folder}/{RunRecord.KEY}" for folder in folders])
    return [
        f"{storage.location}/{folder}"
        for folder, record in zip(folders, found, strict=True)
        if record is not None
    ]


def is_owned(directory: Path) -> bool:
    """Say whether the process for which a run was made may be alive, and will see to it itself.

    Raises:
        Damaged: its launch record is not readable.
    """
    owner = _owner(directory)
    # On another machine nobody can tell from here.
    return owner is not None and is_alive(owner) is not False


def owned_here(store: Path) -> list[Path]:
    """Return the runs of a store that were made for this very process.

    Raises:
        Damaged: a launch record is not readable.
    """
    here = this_process()
    return [directory for directory in run_directories(store) if _owner(directory) == here]


def tracking(store: Path) -> TrackingRecord:
    """Return where MLflow keeps the runs of a store: the tracking record of one of them.

    Raises:
        ConfigError: none of them is tracked.
    """
    for directory in run_directories(store):
        record = read_record(LocalStorage(directory), TrackingRecord)
        if record is not None:
            return record
    raise ConfigError(f"{store}: no run in it is tracked by MLflow; `vinedresser train` does that")


def _owner(directory: Path) -> ProcessIdentity | None:
    launch = read_record(LocalStorage(directory), LaunchRecord)
    if launch is None or launch.owner is None:
        return None
    return ProcessIdentity(**launch.owner)
