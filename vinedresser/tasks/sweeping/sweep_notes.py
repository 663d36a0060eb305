"""Notes on the sweeps whose end MLflow does not know, for the case that their folder is removed."""

from __future__ import annotations

import logging
import os
from pathlib import Path
from typing import ClassVar

from vinedresser.store.records import TrackingRecord
from vinedresser.store.storage import Location
from vinedresser.store.storage.files import is_missing
from vinedresser.sweeps.spec import SweepRecord
from vinedresser.tasks.lifecycle.run_notes import (
    RunNote,
    end_removed,
    forget_run,
    note_run,
    removed_runs,
)

__all__ = [
    "SweepNote",
    "end_removed_sweep",
    "forget_sweep",
    "is_removed",
    "is_removed_sweep",
    "note_sweep",
    "removed_sweeps",
    "settle_removed_sweep",
]

_log = logging.getLogger(__name__)

_REMOVED = "its folder was removed"


class SweepNote(RunNote):
    """A sweep in a directory that MLflow shows as running."""

    KEY: ClassVar[str] = "sweeps"
    MARK: ClassVar[str] = SweepRecord.KEY
    END: ClassVar[dict[str, str]] = {"sweep.over": _REMOVED}

    @classmethod
    def store_of(cls, location: Location) -> Location:
        """Return the store whose flows know the tracking URI."""
        return location


def note_sweep(store: Location, record: SweepRecord) -> None:
    """Note a sweep that this process runs, unless its state is not in the store.

    Raises:
        StoreError: the user's state folder cannot be written.
    """
    if isinstance(store, Path):
        note_run(store, record.id, _tracking(record), SweepNote)


def forget_sweep(store: Location, record: SweepRecord) -> None:
    """Remove the note on a sweep that is settled, if there is one.

    Raises:
        StoreError: the user's state folder cannot be written.
    """
    forget_run(store, _tracking(record), SweepNote)


def is_removed(state: Path) -> bool:
    """Return whether the folder of a sweep that has begun was removed."""
    return is_missing(state / SweepRecord.KEY)


def end_removed_sweep(store: Location, tracking: TrackingRecord) -> None:
    """End MLflow's run of a sweep whose folder was removed.

    Args:
        store: store of its trials.
        tracking: MLflow's run, as the trials' parent.

    Raises:
        UntrustedTracking: see `require_known`.
        TrackingError: MLflow's database or server refused or is unavailable.
    """
    whole = TrackingRecord(tracking.uri, tracking.experiment_id, tracking.parent)
    end_removed(store, whole, SweepNote)


def removed_sweeps(store: Path) -> list[Path]:
    """Return the sweeps of a store whose folder was removed and whose process is gone.

    Raises:
        StoreError: the user's state folder cannot be read.
    """
    return [Path(note.directory) for note in _removed(store)]


def is_removed_sweep(store: Path) -> bool:
    """Return whether a store was a sweep's whose folder was removed and whose process is gone.

    Raises:
        StoreError: the user's state folder cannot be read.
    """
    return bool(_notes_of(store))


def settle_removed_sweep(store: Path) -> str:
    """Give MLflow's runs of sweeps that were in a removed folder their end; idempotent.

    Args:
        store: a store that may have been a sweep's.

    Returns:
        One sentence about what was done; "" for nothing.

    Raises:
        UntrustedTracking: see `require_known`.
        TrackingError: MLflow's database or server refused or is unavailable.
        StoreError: the user's state folder cannot be read or written.
    """
    notes = _notes_of(store)
    for note in notes:
        end_removed(store, TrackingRecord.from_json(note.tracking), SweepNote)
    return f"killed: {_REMOVED}" if notes else ""


def _notes_of(store: Path) -> list[SweepNote]:
    """Return the notes on removed sweeps whose folder a store was."""
    place = os.path.realpath(store)
    notes = _removed(Path(place).parent)
    return [note for note in notes if os.path.realpath(note.directory) == place]


def _removed(store: Path) -> list[SweepNote]:
    faults: list[str] = []
    notes = [*removed_runs(store, faults, SweepNote)]
    for fault in faults:
        _log.warning("%s", fault)
    return notes


def _tracking(record: SweepRecord) -> TrackingRecord:
    return TrackingRecord(record.tracking_uri, record.experiment_id, record.run_id)
