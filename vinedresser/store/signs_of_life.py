"""Signs of life: which processes of a run go on, as far as can be known from here."""

from __future__ import annotations

import time
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, TypeVar

from vinedresser.errors import CorruptData
from vinedresser.processes import ProcessIdentity, is_alive
from vinedresser.store.records import Heartbeat, Record, read_record
from vinedresser.store.storage import LocalStorage, Storage
from vinedresser.store.storage.locate import is_remote
from vinedresser.store.storage.spool import read_target, spools

__all__ = ["LOST", "Sign", "lives", "read_or_none", "signs_of_life"]

# Seconds without a sign of life from another machine, after which a process counts as gone. On an
# object store it is only silent then, and gone much later: there it may be the heartbeats' way to
# the store that is broken, while the process goes on.
_SILENT = 5.0
LOST = 60.0

R = TypeVar("R", bound=Record)


@dataclass(frozen=True)
class Sign:
    """What the heartbeat of a rank says here and now.

    Attributes:
        rank: whose.
        last_step: last optimizer step that ended, -1 before the first.
        closed: it ended in good order.
        goes_on: its process lives, or may live.
        silent: seconds for which nothing was heard of one that may live; 0.0 where it surely does,
            or was heard of lately.
    """

    rank: int
    last_step: int
    closed: bool
    goes_on: bool
    silent: float


def signs_of_life(storage: Storage, keys: Iterable[str], faults: list[str]) -> list[Sign]:
    """Return what the heartbeats under some keys say.

    Args:
        storage: the run's.
        keys: of the heartbeats; one that is not there says nothing.
        faults: takes a sentence for each that is damaged.

    Raises:
        StoreError: the storage refused.
    """
    found = ((key, read_or_none(storage, Heartbeat, key, faults)) for key in keys)
    return [_sign(storage, key, beat) for key, beat in found if beat is not None]


def lives(process: dict[str, Any]) -> bool | None:
    """Say whether a process lives; None when that cannot be known from here.

    Args:
        process: a `ProcessIdentity` as JSON.
    """
    try:
        return is_alive(ProcessIdentity(**process))
    except (TypeError, ValueError):
        # Not the fields of an identity: a record of another version, or a damaged one.
        return None


def read_or_none(storage: Storage, kind: type[R], key: str, faults: list[str]) -> R | None:
    """Return a record; None where there is none, or a damaged one, which the faults say then.

    Raises:
        StoreError: the storage refused.
    """
    try:
        return read_record(storage, kind, key=key)
    except CorruptData as error:
        faults.append(str(error))
        return None


def _sign(storage: Storage, key: str, beat: Heartbeat) -> Sign:
    remote = is_remote(storage.location)
    alive = False if beat.gone else lives(beat.process)
    age = time.time() - beat.time
    silent = age if alive is None and age >= _SILENT else 0.0
    goes_on = age < (LOST if remote else _SILENT) if alive is None else alive
    closed = beat.closed
    if remote and not closed and (silent or not goes_on) and _spooled(storage.location, key):
        goes_on, silent = True, 0.0
    return Sign(beat.rank, beat.last_step, closed, goes_on, silent)


def _spooled(url: str, key: str) -> bool:
    """Say whether a rank's writer lives on this machine, whose spool knows better than the store.

    Args:
        url: of the run.
        key: of the rank's heartbeat.
    """
    for folder in spools():
        target = read_target(folder)
        if target is not None and target.url.rstrip("/") == url:
            beat = read_or_none(LocalStorage(folder), Heartbeat, key, [])
            if beat is not None and lives(beat.process):
                return True
    return False
