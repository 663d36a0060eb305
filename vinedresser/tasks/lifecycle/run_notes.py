"""Notes on the runs whose end MLflow does not know, for the case that their directory is removed.

They are in this user's state folder (`stores.private_state`). A flow makes one for each run in a
directory, and the note is removed when the run is settled. The same is done for sweeps
(`sweeping.sweep_notes`).
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, ClassVar, TypeVar

from vinedresser.infra.tracking import finish
from vinedresser.infra.tracking.location import sqlite_path
from vinedresser.processes import ProcessIdentity, is_alive, this_process
from vinedresser.store.liveness import read_record_or_none
from vinedresser.store.records import Record, RunRecord, TrackingRecord, write_record
from vinedresser.store.storage import LocalStorage, Location
from vinedresser.tasks.known_tracking import require_known
from vinedresser.tasks.stores import private_state

__all__ = ["RunNote", "end_removed", "forget_run", "note_run", "removed_runs"]


@dataclass(frozen=True)
class RunNote(Record):
    """A run in a directory that MLflow shows as running.

    Attributes:
        id: id of the run.
        directory: the run directory, absolute.
        owner: identity of the process that made it.
        tracking: its `TrackingRecord` as JSON.
    """

    KEY: ClassVar[str] = "runs"
    # Without this file in it, the directory was removed.
    MARK: ClassVar[str] = RunRecord.KEY
    END: ClassVar[dict[str, str]] = {
        "exit.cause": "killed",
        "exit.reason": "its run directory was removed",
    }

    id: str
    directory: str
    owner: dict[str, Any]
    tracking: dict[str, Any]

    def __post_init__(self) -> None:
        """Refuse what is not the identity of a process, or not a tracking record."""
        ProcessIdentity(**self.owner)
        TrackingRecord.from_json(self.tracking)

    @classmethod
    def store_of(cls, location: Location) -> Location:
        """Return the store whose flows know the tracking URI."""
        return location.parent


Note = TypeVar("Note", bound=RunNote)


def note_run(
    directory: Path, run_id: str, tracking: TrackingRecord, kind: type[RunNote] = RunNote
) -> None:
    """Note a run that this process has made.

    Args:
        directory: the run directory.
        run_id: id of the run.
        tracking: its MLflow run.
        kind: kind of the note.

    Raises:
        StoreError: the user's state folder cannot be written.
    """
    place = os.path.abspath(directory)
    note = kind(run_id, place, asdict(this_process()), tracking.to_json())
    write_record(LocalStorage(private_state(directory.parent)), note, key=_key(kind, tracking))


def forget_run(location: Location, tracking: TrackingRecord, kind: type[RunNote] = RunNote) -> None:
    """Remove the note on a run that is settled, if there is one.

    Args:
        location: location of the run.
        tracking: its MLflow run.
        kind: kind of the note.

    Raises:
        StoreError: the user's state folder cannot be written.
    """
    LocalStorage(private_state(location.parent)).delete(_key(kind, tracking))


def removed_runs(store: Path, faults: list[str], kind: type[Note]) -> Iterator[Note]:
    """Yield the runs of a store whose directory was removed and whose owner is gone.

    Args:
        store: the store.
        faults: receives a sentence for each damaged note.
        kind: kind of the notes.

    Raises:
        StoreError: the user's state folder cannot be read.
    """
    storage = LocalStorage(private_state(store))
    for key in storage.list(f"{kind.KEY}/"):
        note = read_record_or_none(storage, kind, key, faults)
        if note is None or is_alive(ProcessIdentity(**note.owner)) is not False:
            continue
        if not os.path.lexists(os.path.join(note.directory, kind.MARK)):
            yield note


def end_removed(
    location: Location, tracking: TrackingRecord, kind: type[RunNote] = RunNote
) -> None:
    """End the MLflow run of a run whose directory was removed, and remove the note on it.

    Args:
        location: location of the run.
        tracking: its MLflow run.
        kind: kind of the note.

    Raises:
        UntrustedTracking: see `require_known`.
        TrackingError: MLflow's database or server refused or is unavailable.
    """
    uri = require_known(kind.store_of(location), tracking.uri)
    database = sqlite_path(uri)
    # A database that was removed with the store would be created again.
    if database is None or database.exists():
        finish(uri, tracking.run_id, "KILLED", kind.END, {})
    forget_run(location, tracking, kind)


def _key(kind: type[RunNote], tracking: TrackingRecord) -> str:
    # The same for a run whose record is gone.
    return f"{kind.KEY}/{tracking.run_id}.json"
