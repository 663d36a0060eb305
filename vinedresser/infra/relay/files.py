"""Bringing the small files of a spool to the store whenever they have changed."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from contextlib import suppress

from vinedresser.errors import KeyTaken
from vinedresser.infra.relay.blocks import blocks
from vinedresser.store.records import (
    CaptureRequest,
    ExitRecord,
    Heartbeat,
    RunRecord,
    StopRecord,
    TrainerRequest,
    WaitingRecord,
)
from vinedresser.store.storage import LocalStorage, Storage
from vinedresser.store.storage.base import TEMPORARY
from vinedresser.store.storage.spool import PRIVATE

__all__ = ["Files"]

# What others bring, in an order of their own, what comes from the store, and what is for here only.
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
    *(ExitRecord.KEY, WaitingRecord.KEY, "supervisor.lock"),
)
# Text that grows is brought again after this many seconds, and after as many more as it has MiB.
_GROWING = (".txt", ".log")
_TEXT_AGAIN = 5.0
# A file that is not put as a whole, such as a checkpoint, is brought when left alone for so long.
_QUIET = 1.0

_Signature = tuple[int, int, int]


class Files:
    """All files of a run but its segments, index records, heartbeats and exit record.

    Args:
        spool: the run's directory here.
        store: where it belongs.
        rank: whose spool it is, where each process has its own; None: the whole run's.
    """

    def __init__(self, spool: LocalStorage, store: Storage, rank: int | None) -> None:
        self._spool = spool
        self._store = store
        # Rank 0 says what the run is.
        self._theirs = (*_NOT_OURS, RunRecord.KEY) if rank else _NOT_OURS
        self._brought: dict[str, tuple[_Signature, float]] = {}

    def bring(self, *, all_of_them: bool = False) -> None:
        """Bring what has changed.

        Args:
            all_of_them: nothing will change any more, so nothing is worth waiting for.

        Raises:
            StoreError: the store refused.
        """
        for key in self._keys():
            self.bring_one(key, now=all_of_them)

    def bring_one(self, key: str, *, now: bool = True) -> None:
        """Bring one file if it has changed.

        Args:
            key: its name in the run.
            now: also if it may change again soon.

        Raises:
            StoreError: the store refused.
        """
        path = os.path.join(self._spool.location, key)
        with suppress(FileNotFoundError):
            stat = os.stat(path)
            signature = (stat.st_mtime_ns, stat.st_size, stat.st_ino)
            known, at = self._brought.get(key, (None, 0.0))
            if known == signature or not (now or _is_due(key, stat, at)):
                return
            # The first who asks for a stop wins.
            with suppress(KeyTaken):
                self._store.put(key, blocks(path), exclusive=key == StopRecord.KEY)
            self._brought[key] = (signature, time.monotonic())

    def _keys(self) -> Iterator[str]:
        root = self._spool.location
        for folder, folders, names in os.walk(root):
            inner = os.path.relpath(folder, root)
            prefix = "" if inner == "." else f"{inner}/"
            folders[:] = [one for one in folders if f"{prefix}{one}/" not in self._theirs]
            for name in names:
                if not name.startswith(TEMPORARY) and prefix + name not in self._theirs:
                    yield prefix + name


def _is_due(key: str, stat: os.stat_result, at: float) -> bool:
    """Say whether a file that has changed is to be brought now, last time having been ``at``."""
    if key.endswith(".json"):
        return True
    if key.endswith(_GROWING):
        return time.monotonic() - at >= _TEXT_AGAIN + stat.st_size / (1 << 20)
    return time.time() - stat.st_mtime >= _QUIET
