"""Uploading the small files of a spool whenever they change."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from contextlib import suppress

from vinedresser.errors import KeyTaken, NotAFile, StoreError
from vinedresser.infra.supervise.relay.blocks import blocks
from vinedresser.objects import LocalStorage, Storage
from vinedresser.objects.base import TEMPORARY
from vinedresser.objects.files import is_missing
from vinedresser.plain_logs import plain_logger
from vinedresser.store.records import (
    CaptureRequest,
    ExitRecord,
    Heartbeat,
    RunRecord,
    StopRecord,
    TrainerRequest,
    WaitingRecord,
    run_lock,
)
from vinedresser.store.spool import PRIVATE

_LOG = plain_logger(__name__)

# Files uploaded elsewhere in a certain order, files fetched from the store, and local files.
_NOT_OURS = (
    *(
        "segments/",
        "index/",
        "manifests/",
        f"{Heartbeat.KEY}/",
        f"{CaptureRequest.KEY}/",
        f"{TrainerRequest.KEY}/",
        f"{PRIVATE}/",
    ),
    *(ExitRecord.KEY, WaitingRecord.KEY, run_lock.NAME),
)
# Growing text is uploaded again after this many seconds plus one second per MiB.
_GROWING = (".txt", ".log")
_TEXT_AGAIN = 5.0
# Seconds without a change before a file written in place, such as a checkpoint, is uploaded.
_QUIET = 1.0

_Signature = tuple[int, int, int]


class Files:
    """All files of a run except its segments, index records, heartbeats and exit record.

    Args:
        spool: the run's local directory.
        store: the run's location in the store.
        rank: the rank of the spool if each process has its own; None: the spool of the whole run.
    """

    def __init__(self, spool: LocalStorage, store: Storage, rank: int | None) -> None:
        self._spool = spool
        self._store = store
        # Rank 0 uploads the run record.
        self._theirs = (*_NOT_OURS, RunRecord.KEY) if rank else _NOT_OURS
        self._brought: dict[str, tuple[_Signature, float]] = {}

    def bring(self, *, all_of_them: bool = False) -> None:
        """Upload the files that have changed.

        Args:
            all_of_them: upload all of them now, since nothing will change any more.

        Raises:
            StoreError: the store refused.
        """
        there = list(self._keys())
        for key in there:
            self.bring_one(key, now=all_of_them)
        # Records first: what is left without one is no snapshot.
        for key in sorted(self._brought.keys() - there, reverse=True):
            if key.startswith("snapshots/") and is_missing(f"{self._spool.location}/{key}"):
                # The hook keeps a bounded number.
                self._store.delete(key)
                del self._brought[key]

    def bring_one(self, key: str, *, now: bool = True) -> None:
        """Upload one file if it has changed.

        Args:
            key: its name in the run.
            now: upload it even if it may change again soon.

        Raises:
            StoreError: the store refused.
        """
        path = os.path.join(self._spool.location, key)
        with suppress(FileNotFoundError):
            stat = os.lstat(path)
            signature = (stat.st_mtime_ns, stat.st_size, stat.st_ino)
            known, at = self._brought.get(key, (None, 0.0))
            if known == signature or not (now or _is_due(key, stat, at)):
                return
            try:
                content = blocks(self._spool.location, key)
                self._store.put(key, content, exclusive=key == StopRecord.KEY)
            except KeyTaken:
                # The first stop request wins.
                pass
            except NotAFile as error:
                # Nothing outside of the run is uploaded; the others are.
                _LOG.warning("not uploaded: %s", error)
            self._brought[key] = (signature, time.monotonic())

    def _keys(self) -> Iterator[str]:
        root = self._spool.location
        # Files of a folder that cannot be listed would be left behind, and lost with the spool.
        for folder, folders, names in os.walk(root, onerror=_refuse):
            inner = os.path.relpath(folder, root)
            prefix = "" if inner == "." else f"{inner}/"
            folders[:] = [one for one in folders if f"{prefix}{one}/" not in self._theirs]
            # The tensors of a snapshot before the record that makes it one.
            for name in sorted(names):
                if not name.startswith(TEMPORARY) and prefix + name not in self._theirs:
                    yield prefix + name


def _refuse(error: OSError) -> None:
    """Raise the error of a folder that cannot be listed, unless it was removed."""
    if not isinstance(error, FileNotFoundError):
        raise StoreError(f"{error.filename}: {error.strerror}") from error


def _is_due(key: str, stat: os.stat_result, at: float) -> bool:
    """Return whether a changed file, last uploaded at ``at``, is due."""
    if key.endswith(".json") or key.startswith("snapshots/"):
        # Written under another name and renamed.
        return True
    if key.endswith(_GROWING):
        return time.monotonic() - at >= _TEXT_AGAIN + stat.st_size / (1 << 20)
    return time.time() - stat.st_mtime >= _QUIET
