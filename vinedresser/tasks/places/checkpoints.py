"""What a run has saved of its model, in its directory or on an object store."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection
from pathlib import Path, PurePath
from typing import NamedTuple

from vinedresser.store.reading.reader import Run
from vinedresser.store.records import heartbeats
from vinedresser.store.storage import LocalStorage, Storage

__all__ = ["SavedCheckpoint", "fetch_checkpoint", "last_checkpoint", "saved_checkpoints"]

_FOLDER = "checkpoints"
# As the hook calls them; a user's own may have any ending, and be a folder.
_NAME = re.compile(r"step-(\d+)")


class SavedCheckpoint(NamedTuple):
    """A checkpoint, and of which run.

    Attributes:
        run: the run's name.
        key: in the run, such as ``checkpoints/step-60.pt``.
        steps: optimizer steps of the run that were done then.
    """

    run: str
    key: str
    steps: int

    @classmethod
    def at(cls, path: str) -> SavedCheckpoint | None:
        """Return the checkpoint that a path leads to; None where it is none of a run's."""
        parts = PurePath(path).parts[-3:]
        if len(parts) < 3 or parts[1] != _FOLDER or not (name := _NAME.match(parts[2])):
            return None
        return cls(parts[0], f"{_FOLDER}/{parts[2]}", int(name[1]))


def saved_checkpoints(storage: Storage) -> list[SavedCheckpoint]:
    """Return the checkpoints of a run that can be gone on from, the latest first.

    These are ``checkpoints/step-<steps>`` with any ending. Of a training that saves several files
    at a time, such as one per rank, none can be named.

    Args:
        storage: the run's.

    Raises:
        StoreError: the storage refused.
    """
    run = PurePath(storage.location).name
    names = {key.split("/")[1] for key in storage.list(f"{_FOLDER}/")}
    found = [
        SavedCheckpoint(run, f"{_FOLDER}/{name}", int(steps[1]))
        for name in names
        if (steps := _NAME.match(name))
    ]
    files = Counter(one.steps for one in found)
    alone = [one for one in found if one.steps > 0 and files[one.steps] == 1]
    return sorted(alone, key=lambda one: one.steps, reverse=True)


def last_checkpoint(run: Run, besides: Collection[SavedCheckpoint] = ()) -> SavedCheckpoint | None:
    """Return the checkpoint from which a run that broke off is gone on with; None: from the start.

    Nothing that came before it is missing in the run: of one that was killed, the last steps and
    evaluations may not be there, and the file itself may not be whole. So a train step that came
    after it has to be there.

    Args:
        run: that is over.
        besides: checkpoints that have proved to be of no use.

    Raises:
        StoreError: the storage refused.
    """
    beats = heartbeats(run.storage)
    complete = bool(beats) and all(beat.closed for beat in beats)
    steps = run.steps("train")
    for one in saved_checkpoints(run.storage):
        if one not in besides and (complete or (len(steps) and one.steps <= steps[-1])):
            return one
    return None


def fetch_checkpoint(storage: Storage, saved: SavedCheckpoint, folder: Path) -> Path:
    """Return the path of a checkpoint on this machine.

    Args:
        storage: of the run that has it.
        saved: the checkpoint.
        folder: for what has to be fetched from an object store, a folder for each run.

    Raises:
        StoreError: the storage refused.
    """
    if isinstance(storage, LocalStorage):
        return Path(storage.location, saved.key).absolute()
    there = LocalStorage(folder / saved.run)
    # It is a file, or a folder of files.
    keys = [
        key
        for key in storage.list(saved.key)
        if key == saved.key or key.startswith(f"{saved.key}/")
    ]
    for key in keys:
        there.put(key, [storage.get(key)])
    return Path(there.location, saved.key)
