"""Notes on sweeps and prunings whose end MLflow does not know, in case their folder is removed."""

from __future__ import annotations

import os
from pathlib import Path
from typing import ClassVar

from vinedresser.infra.catalog.run_notes import (
    RunNote,
    forget_run,
    note_run,
    removed_runs,
)
from vinedresser.objects import Location
from vinedresser.plain_logs import plain_logger
from vinedresser.pruning.spec import PruningRecord
from vinedresser.store.records import ParentRecord, TrackingRecord
from vinedresser.sweeps.spec import SweepRecord
from vinedresser.tasks.lifecycle.mlflow_run import end_removed

__all__ = [
    "end_removed_parent",
    "forget_parent",
    "is_removed_parent",
    "note_parent",
    "removed_parents",
    "settle_removed_parent",
]

_log = plain_logger(__name__)

_REMOVED = "its folder was removed"


class _ParentNote(RunNote):
    """A sweep or pruning in a directory that MLflow shows as running."""

    @classmethod
    def store_of(cls, location: Location) -> Location:
        """Return the store whose flows know the tracking URI."""
        return location


class _SweepNote(_ParentNote):
    KEY: ClassVar[str] = "sweeps"
    MARK: ClassVar[str] = SweepRecord.KEY
    END: ClassVar[dict[str, str]] = {"sweep.over": _REMOVED, "sweep.running": "0"}


class _PruningNote(_ParentNote):
    KEY: ClassVar[str] = "prunings"
    MARK: ClassVar[str] = PruningRecord.KEY
    END: ClassVar[dict[str, str]] = {"pruning.over": _REMOVED}


_NOTES: dict[type[ParentRecord], type[_ParentNote]] = {
    SweepRecord: _SweepNote,
    PruningRecord: _PruningNote,
}


def note_parent(store: Location, record: ParentRecord) -> None:
    """Note what this process runs, unless its state is not in the store.

    Raises:
        StoreError: the user's state folder cannot be written.
    """
    if isinstance(store, Path):
        note_run(store, record.id, _tracking(record), _NOTES[type(record)])


def forget_parent(store: Location, record: ParentRecord) -> None:
    """Remove the note on what is settled, if there is one.

    Raises:
        StoreError: the user's state folder cannot be written.
    """
    forget_run(store, _tracking(record), _NOTES[type(record)])


def end_removed_parent(store: Location, kind: type[ParentRecord], tracking: TrackingRecord) -> None:
    """End the MLflow run of a sweep or pruning whose folder was removed.

    Args:
        kind: whether it was a sweep or a pruning.

    Raises:
        UntrustedTracking: see `require_known`.
        TrackingError: MLflow's database or server refused or is unavailable.
    """
    whole = TrackingRecord(tracking.uri, tracking.experiment_id, tracking.parent)
    end_removed(store, whole, _NOTES[kind])


def removed_parents(store: Path) -> list[Path]:
    """Return those of a store whose folder was removed and whose process is gone.

    Raises:
        StoreError: the user's state folder cannot be read.
    """
    return [Path(note.directory) for kind in _NOTES.values() for note in _removed(store, kind)]


def is_removed_parent(store: Path) -> bool:
    """Return whether a store was one's whose folder was removed and whose process is gone.

    Raises:
        StoreError: the user's state folder cannot be read.
    """
    return any(_notes_of(store, kind) for kind in _NOTES.values())


def settle_removed_parent(store: Path, kind: type[ParentRecord]) -> str:
    """Give MLflow's runs of what was in a removed folder their end; idempotent.

    Args:
        store: a store that may have been one's.
        kind: whether to look for a sweep or a pruning.

    Returns:
        One sentence about what was done; "" for nothing.

    Raises:
        UntrustedTracking: see `require_known`.
        TrackingError: MLflow's database or server refused or is unavailable.
        StoreError: the user's state folder cannot be read or written.
    """
    notes = _notes_of(store, _NOTES[kind])
    for note in notes:
        end_removed(store, TrackingRecord.from_json(note.tracking), _NOTES[kind])
    return f"killed: {_REMOVED}" if notes else ""


def _notes_of(store: Path, kind: type[_ParentNote]) -> list[_ParentNote]:
    """Return the notes on removed ones whose folder a store was."""
    place = os.path.realpath(store)
    notes = _removed(Path(place).parent, kind)
    return [note for note in notes if os.path.realpath(note.directory) == place]


def _removed(store: Path, kind: type[_ParentNote]) -> list[_ParentNote]:
    faults: list[str] = []
    notes = [*removed_runs(store, faults, kind)]
    for fault in faults:
        _log.warning("%s", fault)
    return notes


def _tracking(record: ParentRecord) -> TrackingRecord:
    return TrackingRecord(record.tracking_uri, record.experiment_id, record.run_id)
