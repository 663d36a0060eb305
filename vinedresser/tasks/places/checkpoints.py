"""The checkpoints of a run, in its directory or on an object store."""

from __future__ import annotations

import hashlib
import re
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from pathlib import Path, PurePath
from typing import NamedTuple

from vinedresser.errors import CorruptData
from vinedresser.objects import LocalStorage, Location, Storage
from vinedresser.objects.base import get_chunks
from vinedresser.objects.files import check_file, folder_below
from vinedresser.store.liveness import read_record_or_none
from vinedresser.store.reading.reader import Run, open_run
from vinedresser.store.records import ExitRecord, LaunchRecord, heartbeats
from vinedresser.tasks.places.checkpoint_parts import fault_of, is_other, rank_file

__all__ = [
    "Report",
    "SavedCheckpoint",
    "copy_checkpoint",
    "fetch_checkpoint",
    "last_checkpoint",
    "last_of_runs",
    "rank_count",
    "usable_checkpoints",
]

_FOLDER = "checkpoints"
# The hook's naming; a user's own may have any suffix and be a folder.
_NAME = re.compile(r"step-(\d+)")
# The hook's weights of a sharded model, one file for each rank.
_SHARD = re.compile(r"\.rank-\d+\.safetensors$")
_UNFINISHED = (".tmp", ".part", "~")

Report = Callable[[str], object]
"""Called with one sentence."""


def _silent(sentence: str) -> None:
    """Report nothing."""


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


def rank_count(run: Run) -> int:
    """Return how many ranks a run had: its record counts only those that capture something."""
    launch = read_record_or_none(run.storage, LaunchRecord, LaunchRecord.KEY, [])
    return max(run.info.world_size, 1 if launch is None else launch.ranks)


def _saved(run: str, keys: Iterable[str], ranks: int) -> list[SavedCheckpoint]:
    """Return the checkpoints among keys, the latest first; see `usable_checkpoints`."""
    names: dict[int, set[str]] = defaultdict(set)
    for name in {key.split("/")[1] for key in keys}:
        match = _NAME.match(name)
        if match and int(match[1]) and not name.endswith(_UNFINISHED):
            names[int(match[1])].add(name)
    found = []
    for steps, those in names.items():
        parts = [one for one in map(rank_file, those) if one is not None]
        other = is_other({int(part.number) for part in parts}, ranks)
        of_ranks = len(parts) == len(those) and not other
        if any(map(_SHARD.search, those)) or (len(those) > 1 and not of_ranks):
            continue
        name = those.pop()
        if of_ranks:
            name = _NAME.match(name)[0]  # type: ignore[index]
        found.append(SavedCheckpoint(run, f"{_FOLDER}/{name}", steps))
    return sorted(found, key=lambda one: one.steps, reverse=True)


def _files(saved: SavedCheckpoint, keys: Iterable[str]) -> list[str]:
    """Return the keys of the files of a checkpoint: itself, those in it, or those of its ranks."""
    own = [key for key in keys if key == saved.key or key.startswith(f"{saved.key}/")]
    of_ranks = re.compile(rf"{re.escape(saved.key)}(?!\d)([^/]*)")
    names = ((key, of_ranks.match(key)) for key in keys)
    return own or [key for key, name in names if name is not None and rank_file(name[1])]


def usable_checkpoints(
    run: Run,
    *,
    below: int | None = None,
    ranks: int | None = None,
    report: Report = _silent,
) -> Iterator[SavedCheckpoint]:
    """Yield the checkpoints from which a run can resume, the latest first.

    These are ``checkpoints/step-<steps>``: a file with any suffix, a folder, or what each rank has,
    such as ``step-<steps>_rank_<rank>.pt``, whose key is ``checkpoints/step-<steps>``. Of several
    other files of a step, it is unknown which belong together. The shards that the hook saves,
    which are no state of a training, do not qualify, nor do files that are missing, cut off or
    damaged.

    Args:
        run: a run that is over.
        below: only checkpoints of fewer steps.
        ranks: number of ranks that resume; None: as many as the run had.
        report: called with one sentence for each checkpoint that is not complete.

    Raises:
        StoreError: the storage refused a request.
    """
    keys, before = run.storage.list(f"{_FOLDER}/"), rank_count(run)
    for checkpoint in _saved(PurePath(run.path).name, keys, before):
        if below is None or checkpoint.steps < below:
            if fault := _fault(run.storage, _files(checkpoint, keys), before, ranks):
                report(f"{run.info.name}: {checkpoint.key} is not used: {fault}")
            else:
                yield checkpoint


def last_checkpoint(
    run: Run,
    *,
    below: int | None = None,
    ranks: int | None = None,
    report: Report = _silent,
) -> SavedCheckpoint | None:
    """Return the checkpoint from which to resume an interrupted run; None for the start.

    The run has everything from before that checkpoint. After a kill the last steps and evaluations
    may be missing and the file incomplete, so a later train step must be present.

    Args:
        run, below, ranks, report: see `usable_checkpoints`.

    Raises:
        StoreError: the storage refused a request.
    """
    beats = heartbeats(run.storage)
    complete = bool(beats) and all(beat.closed for beat in beats)
    steps = run.steps("train")
    for checkpoint in usable_checkpoints(run, below=below, ranks=ranks, report=report):
        if complete or (len(steps) and checkpoint.steps <= steps[-1]):
            return checkpoint
    return None


def _fault(storage: Storage, files: Sequence[str], before: int, ranks: int | None) -> str:
    """Return why a checkpoint cannot be resumed; "" if it can, as far as its files tell.

    Args:
        before: number of ranks that saved it.
        ranks: number of ranks that resume; None: as many.
    """
    if fault := fault_of(storage, files, before):
        return fault
    parts = (one for one in map(rank_file, files) if one is not None)
    if ranks not in (None, before) and any(int(part.number) < before for part in parts):
        return f"it has the parts of {before} ranks, and the training continues with {ranks}"
    return ""


def last_of_runs(
    runs: Mapping[str, Location],
    origins: Mapping[str, SavedCheckpoint | None],
    *,
    ranks: int | None = None,
    other_cause: Collection[str] = (),
    report: Report = _silent,
) -> SavedCheckpoint | None:
    """Return the last checkpoint of the last run, or else of the runs from which it began.

    Args:
        runs: runs by name, all of which are over.
        origins: the checkpoint of an earlier run from which each began; None: its own start.
        other_cause: runs whose failure is known not to come from their checkpoint.
        ranks, report: see `usable_checkpoints`.

    Raises:
        StoreError: a run cannot be read.
    """
    if not runs:
        return None
    name, below = [*runs][-1], None
    while True:
        run = open_run(runs[name])
        if found := last_checkpoint(run, below=below, ranks=ranks, report=report):
            return found
        origin = origins[name]
        if origin is None:
            return None
        if name not in other_cause:
            # The checkpoint may be unreadable for the training.
            below = origin.steps if _failed_at_once(run) else origin.steps + 1
        name = origin.run


def _failed_at_once(run: Run) -> bool:
    """Return whether the program of a run crashed before its first step."""
    end = read_record_or_none(run.storage, ExitRecord, ExitRecord.KEY, [])
    # A program that could not be started, with a shell's exit code, has read no checkpoint.
    started = end is None or end.code not in (126, 127)
    return started and run.status.state == "crashed" and not len(run.steps("train"))


def fetch_checkpoint(storage: Storage, saved: SavedCheckpoint, folder: Path) -> Path:
    """Return the path of a checkpoint on this machine, fetched if necessary.

    Args:
        folder: folder for fetched checkpoints, with a folder for each run.

    Raises:
        CorruptData: see `copy_checkpoint`.
        NotAFile: it is something else, such as a symbolic link.
        StoreError: the storage refused a request.
    """
    if isinstance(storage, LocalStorage):
        root = Path(storage.location).absolute()
        path = folder_below(root, saved.key.rpartition("/")[0]) / saved.key.rpartition("/")[2]
        # Of parts of ranks, nothing is there: it is what their names share.
        if path.is_symlink() or not path.is_dir():
            check_file(path)
        return path
    return copy_checkpoint(storage, saved, folder)


def copy_checkpoint(storage: Storage, saved: SavedCheckpoint, folder: Path) -> Path:
    """Copy a checkpoint, a file or a folder of files, and return the path of the verified copy.

    Args:
        folder: folder for copies, with a folder for each run.

    Raises:
        CorruptData: it was removed, or the copy has other bytes.
        NotAFile: the folder is something else, such as a symbolic link.
        StoreError: a storage refused a request.
    """
    there = LocalStorage(folder_below(folder.parent, f"{folder.name}/{saved.run}"))
    keys = _files(saved, storage.list(saved.key))
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
