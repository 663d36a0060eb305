"""Liveness: which processes of a run are still alive, judged from this machine."""

from __future__ import annotations

import time
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, TypeVar

from vinedresser.errors import CorruptData
from vinedresser.objects import LocalStorage, Storage
from vinedresser.objects.location import is_remote
from vinedresser.processes import ProcessIdentity, is_alive
from vinedresser.store.records import (
    ClaimRecord,
    Heartbeat,
    Record,
    read_record,
)
from vinedresser.store.spool import read_target, spools

__all__ = [
    "LOST_AFTER",
    "RankLiveness",
    "claimer_is_gone",
    "process_alive",
    "rank_liveness",
    "read_record_or_none",
]

# Seconds without a heartbeat after which a process on another machine counts as gone. On an object
# store it only counts as silent then, and as gone after LOST_AFTER seconds: the upload of the
# heartbeats may be interrupted while the process keeps running.
_SILENT_AFTER = 5.0
LOST_AFTER = 60.0

R = TypeVar("R", bound=Record)


@dataclass(frozen=True)
class RankLiveness:
    """The state of one rank's process, judged from its heartbeat.

    Attributes:
        last_step: last completed optimizer step, -1 before the first.
        closed: the writer shut down cleanly.
        alive: the process is alive, or may be.
        silent: seconds since the last heartbeat of a process that may be alive; 0.0 if it is
            certainly alive or its last heartbeat is recent.
    """

    rank: int
    last_step: int
    closed: bool
    alive: bool
    silent: float


def rank_liveness(storage: Storage, keys: Iterable[str], faults: list[str]) -> list[RankLiveness]:
    """Return the liveness of the ranks whose heartbeats are stored under some keys.

    Args:
        keys: keys of the heartbeats; missing ones are skipped.
        faults: receives one sentence for each corrupt heartbeat.

    Raises:
        StoreError: the storage refused.
    """
    found = ((key, read_record_or_none(storage, Heartbeat, key, faults)) for key in keys)
    return [_liveness(storage, key, beat) for key, beat in found if beat is not None]


def process_alive(process: dict[str, Any]) -> bool | None:
    """Return whether a process is alive; None if that cannot be determined from this machine.

    Args:
        process: a `ProcessIdentity` as JSON.
    """
    return is_alive(ProcessIdentity(**process))


def claimer_is_gone(storage: Storage) -> bool:
    """Return whether the only process of a script that could write an additional run has ended.

    It may have been killed before its first heartbeat.

    Args:
        storage: the run's storage. Of a launched run, another process of the script may write it.

    Raises:
        StoreError: the storage refused.
    """
    claim = read_record_or_none(storage, ClaimRecord, ClaimRecord.KEY, [])
    process = claim.process if claim is not None else None
    return process is not None and is_alive(process) is False


def read_record_or_none(storage: Storage, kind: type[R], key: str, faults: list[str]) -> R | None:
    """Return a record; None if it is missing or corrupt.

    Args:
        kind: class of the record.
        faults: receives a sentence if the record is corrupt.

    Raises:
        StoreError: the storage refused.
    """
    try:
        return read_record(storage, kind, key=key)
    except CorruptData as error:
        faults.append(str(error))
        return None


def _liveness(storage: Storage, key: str, beat: Heartbeat) -> RankLiveness:
    remote = is_remote(storage.location)
    alive = False if beat.gone else process_alive(beat.process)
    age = time.time() - beat.time
    silent = age if alive is None and age >= _SILENT_AFTER else 0.0
    if alive is None:
        alive = age < (LOST_AFTER if remote else _SILENT_AFTER)
    if remote and not beat.closed and (silent or not alive) and _spooled(storage.location, key):
        alive, silent = True, 0.0
    return RankLiveness(beat.rank, beat.last_step, beat.closed, alive, silent)


def _spooled(url: str, key: str) -> bool:
    """Return whether a spool on this machine has a live writer of a rank.

    Such a spool is more recent than the object store.

    Args:
        key: key of the rank's heartbeat.
    """
    for folder in spools():
        target = read_target(folder)
        if target is not None and target.url.rstrip("/") == url:
            beat = read_record_or_none(LocalStorage(folder), Heartbeat, key, [])
            if beat is not None and process_alive(beat.process):
                return True
    return False
