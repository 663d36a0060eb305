"""Notes on the runs whose end MLflow does not know, for removed directories and damaged records.

They are in this user's state folder (`stores.private_state`). A flow makes one for each run that
no worker of a cluster trains, and it is removed when the run is settled. The same is done for
sweeps and prunings (`parents.parent_notes`).
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, ClassVar, TypeVar

from vinedresser.errors import UntrustedTracking
from vinedresser.infra.catalog.known_tracking import with_known_uri
from vinedresser.infra.catalog.stores import private_state
from vinedresser.objects import LocalStorage, Location, Storage, open_storage
from vinedresser.objects.files import is_missing
from vinedresser.processes import ProcessIdentity, is_alive, this_process
from vinedresser.store.liveness import read_record_or_none
from vinedresser.store.records import Record, RunRecord, TrackingRecord, write_record

__all__ = [
    "RunNote",
    "forget_run",
    "mark_settled",
    "note_run",
    "removed_runs",
    "stored_tracking",
    "tracking_or_note",
]


@dataclass(frozen=True)
class RunNote(Record):
    """A run in a directory that MLflow shows as running.

    Attributes:
        directory: the run directory, absolute, or the URL of the run.
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
    location: Location, run_id: str, tracking: TrackingRecord, kind: type[RunNote] = RunNote
) -> None:
    """Note a run that this process has made.

    Args:
        tracking: its MLflow run.

    Raises:
        StoreError: the user's state folder cannot be written.
    """
    note = kind(run_id, _place(location), asdict(this_process()), tracking.to_json())
    write_record(LocalStorage(private_state(location.parent)), note, key=_key(kind, tracking))


def forget_run(location: Location, tracking: TrackingRecord, kind: type[RunNote] = RunNote) -> None:
    """Remove the note on a run that is settled, if there is one.

    Args:
        tracking: its MLflow run.

    Raises:
        StoreError: the user's state folder cannot be written.
    """
    LocalStorage(private_state(location.parent)).delete(_key(kind, tracking))


def stored_tracking(location: Location, storage: Storage) -> TrackingRecord | None:
    """Return the tracking record of a run; of a damaged one, what the note on the run says.

    Returns:
        None if MLflow does not track the run.

    Raises:
        UntrustedTracking: the record is damaged, and no flow of this user has noted the run.
        StoreError: the storage refused, or the user's state folder cannot be read.
    """
    faults: list[str] = []
    record = read_record_or_none(storage, TrackingRecord, TrackingRecord.KEY, faults)
    if record is not None or not faults:
        return record
    run = read_record_or_none(storage, RunRecord, RunRecord.KEY, faults)
    place = _place(location)
    notes = LocalStorage(private_state(location.parent))
    for key in notes.list(f"{RunNote.KEY}/"):
        note = read_record_or_none(notes, RunNote, key, faults)
        if note is not None and note.directory == place and run and note.id == run.id:
            return TrackingRecord.from_json(note.tracking)
    raise UntrustedTracking(f"{faults[0]}; no flow of yours has noted where MLflow keeps the run")


def tracking_or_note(location: Location, storage: Storage) -> TrackingRecord | None:
    """Return what `stored_tracking` does, with the password of its tracking URI.

    Raises:
        UntrustedTracking: see `stored_tracking` and `require_known`.
        StoreError: the storage refused, or the user's state folder cannot be read.
    """
    record = stored_tracking(location, storage)
    return with_known_uri(location, record) if record is not None else None


def mark_settled(location: Location, tracking: TrackingRecord) -> None:
    """Note in a run that MLflow knows its end; if its record is damaged, in the note on it.

    Raises:
        StoreError: the storage refused, or the user's state folder cannot be written.
    """
    storage = open_storage(location)
    told = replace(tracking, settled=True)
    if read_record_or_none(storage, TrackingRecord, TrackingRecord.KEY, []) is not None:
        write_record(storage, told)
        forget_run(location, tracking)
    elif (run := read_record_or_none(storage, RunRecord, RunRecord.KEY, [])) is not None:
        note_run(location, run.id, told)


def removed_runs(store: Path, faults: list[str], kind: type[Note]) -> Iterator[Note]:
    """Yield the runs of a store whose directory was removed and whose owner is gone.

    Args:
        faults: receives a sentence for each damaged note.

    Raises:
        StoreError: the user's state folder cannot be read.
    """
    storage = LocalStorage(private_state(store))
    for key in storage.list(f"{kind.KEY}/"):
        note = read_record_or_none(storage, kind, key, faults)
        if (
            note is None
            or note.tracking.get("settled")
            or is_alive(ProcessIdentity(**note.owner)) is not False
        ):
            continue
        if is_missing(os.path.join(note.directory, kind.MARK)):
            yield note


def _place(location: Location) -> str:
    return os.path.abspath(location) if isinstance(location, Path) else str(location)


def _key(kind: type[RunNote], tracking: TrackingRecord) -> str:
    # The same for a run whose record is gone.
    return f"{kind.KEY}/{tracking.run_id}.json"
