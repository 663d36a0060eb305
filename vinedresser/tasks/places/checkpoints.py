"""The checkpoints of a run, in its directory or on an object store."""

from __future__ import annotations

import hashlib
import re
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator
from pathlib import Path, PurePath
from typing import NamedTuple

from vinedresser.errors import CorruptData
from vinedresser.objects import LocalStorage, Storage
from vinedresser.objects.base import get_chunks
from vinedresser.objects.files import check_file, folder_below
from vinedresser.store.reading.reader import Run
from vinedresser.store.records import heartbeats

__all__ = [
    "SavedCheckpoint",
    "copy_checkpoint",
    "fetch_checkpoint",
    "last_checkpoint",
    "saved_checkpoints",
]

_FOLDER = "checkpoints"
# The hook's naming; a user's own may have any suffix and be a folder.
_NAME = re.compile(r"step-(\d+)")


class SavedCheckpoint(NamedTuple):
    """A checkpoint of a run.

    Attributes:
        run: name of the run.
        key: key within the run, such as ``checkpoints/step-60.pt``.
        steps: number of optimizer steps that the run had done.
    """

    run: str
    key: str
    steps: int

    @classmethod
    def at(cls, path: str) -> SavedCheckpoint | None:
        """Return the checkpoint at a path; None if it is not a checkpoint of a run."""
        parts = PurePath(path).parts[-3:]
        if len(parts) < 3 or parts[1] != _FOLDER or not (name := _NAME.match(parts[2])):
            return None
        return cls(parts[0], f"{_FOLDER}/{parts[2]}", int(name[1]))


def saved_checkpoints(storage: Storage) -> list[SavedCheckpoint]:
    """Return the checkpoints from which a run can resume, the latest first.

    These are ``checkpoints/step-<steps>`` with any suffix. If a training saves several files at a
    time, such as one per rank, none of them qualifies.

    Raises:
        StoreError: the storage refused a request.
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
    """Return the checkpoint from which to resume an interrupted run; None for the start.

    The run has everything from before that checkpoint. After a kill the last steps and evaluations
    may be missing and the file incomplete, so a later train step must be present.

    Args:
        run: a run that is over.
        besides: checkpoints that have proved useless.

    Raises:
        StoreError: the storage refused a request.
    """
    beats = heartbeats(run.storage)
    complete = bool(beats) and all(beat.closed for beat in beats)
    steps = run.steps("train")
    for checkpoint in saved_checkpoints(run.storage):
        if checkpoint not in besides and (
            complete or (len(steps) and checkpoint.steps <= steps[-1])
        ):
            return checkpoint
    return None


def fetch_checkpoint(storage: Storage, saved: SavedCheckpoint, folder: Path) -> Path:
    """Return the path of a checkpoint on this machine, fetched if necessary.

    Args:
        storage: storage of its run.
        folder: folder for fetched checkpoints, with a folder for each run.

    Raises:
        CorruptData: see `copy_checkpoint`.
        NotAFile: it is something else, such as a symbolic link.
        StoreError: the storage refused a request.
    """
    if isinstance(storage, LocalStorage):
        root = Path(storage.location).absolute()
        path = folder_below(root, saved.key.rpartition("/")[0]) / saved.key.rpartition("/")[2]
        if path.is_symlink() or not path.is_dir():
            check_file(path)
        return path
    return copy_checkpoint(storage, saved, folder)


def copy_checkpoint(storage: Storage, saved: SavedCheckpoint, folder: Path) -> Path:
    """Copy a checkpoint, a file or a folder of files, and return the path of the verified copy.

    Args:
        storage: storage of its run.
        folder: folder for copies, with a folder for each run.

    Raises:
        CorruptData: it was removed, or the copy has other bytes.
        NotAFile: the folder is something else, such as a symbolic link.
        StoreError: a storage refused a request.
    """
    there = LocalStorage(folder_below(folder.parent, f"{folder.name}/{saved.run}"))
    keys = [
        key
        for key in storage.list(saved.key)
        if key == saved.key or key.startswith(f"{saved.key}/")
    ]
    if not keys:
        raise CorruptData(f"{storage.location}: {saved.key} was removed")
    for key in keys:
        digest = hashlib.sha256()
        there.put(key, _digested(get_chunks(storage, key), digest.update))
        copied = hashlib.sha256()
        for chunk in get_chunks(there, key):
            copied.update(chunk)
        if copied.digest() != digest.digest():
            raise CorruptData(f"{there.location}/{key}: not the bytes of {storage.location}")
    return Path(there.location, saved.key)


def _digested(chunks: Iterable[bytes], update: Callable[[bytes], None]) -> Iterator[bytes]:
    for chunk in chunks:
        update(chunk)
        yield chunk
