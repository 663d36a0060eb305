"""Liveness: which processes of a run are still alive, judged from this machine."""

from __future__ import annotations

import time
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, TypeVar

from vinedresser.errors import CorruptData
from vinedresser.objects import LocalStorage, Storage
from vinedresser.objects.base import get_or_none
from vinedresser.objects.location import is_remote
from vinedresser.processes import ProcessIdentity, is_alive
from vinedresser.store.json_values import DAMAGE, parse_json
from vinedresser.store.records import (
    ClaimRecord,
    ExitRecord,
    Heartbeat,
    HostOrders,
    Record,
    SupervisorRecord,
    SystemRecord,
    known_keys,
    read_record,
)
from vinedresser.store.spool import read_target, spools

__all__ = [
    "LOST_AFTER",
    "LastSign",
    "RankLiveness",
    "claimer_is_gone",
    "last_sign",
    "process_alive",
    "rank_liveness",
    "read_record_or_none",
]

# Seconds without a heartbeat after which a process on another machine counts as silent, and
# as gone: uploads may be delayed, a shared file system may be slow, and clocks differ by seconds.
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


@dataclass(frozen=True)
class LastSign:
    """What was last heard of the processes of a run.

    Attributes:
        time: when, in seconds since the epoch; 0.0 if nothing was.
        host: machine of the process, if it is another one; "" otherwise.
    """

    time: float = 0.0
    host: str = ""

    @property
    def when(self) -> str:
        """The time as text."""
        return time.strftime("%Y-%m-%d %H:%M", time.localtime(self.time)) if self.time else "never"


def last_sign(storage: Storage) -> LastSign:
    """Return the last sign of life of a run's processes.

    These are heartbeats, the start of the supervisor, its measurements of the machine's load, which
    are at most five minutes apart, or its orders to the hosts of a launcher, one a second, and the
    end.

    Damaged records count as missing.

    Raises:
        StoreError: the storage refused.
    """
    faults: list[str] = []
    keys = known_keys(storage, Heartbeat.KEY, faults)
    beats = [read_record_or_none(storage, Heartbeat, key, faults) for key in keys]
    signs = [(beat.time, beat.process) for beat in beats if beat is not None]
    supervisor = read_record_or_none(storage, SupervisorRecord, SupervisorRecord.KEY, faults)
    if supervisor is not None:
        orders = read_record_or_none(storage, HostOrders, HostOrders.KEY, faults)
        told = orders.time if orders is not None else 0.0
        signs.append((max(supervisor.started, _last_load(storage), told), supervisor.supervisor))
    exited = read_record_or_none(storage, ExitRecord, ExitRecord.KEY, faults)
    ended = exited.ended if exited is not None else 0.0
    if not signs:
        return LastSign(ended)
    when, process = max(signs, key=lambda sign: sign[0])
    elsewhere = process_alive(process) is None
    return LastSign(max(when, ended), ProcessIdentity(**process).host if elsewhere else "")


def _last_load(storage: Storage) -> float:
    """Return when the load of a run's machine was measured last; 0.0 if it was not."""
    # Something else may be in its place, such as a link.
    with suppress(CorruptData):
        for line in reversed((get_or_none(storage, SystemRecord.KEY) or b"").splitlines()):
            # The last line may be incomplete.
            with suppress(*DAMAGE):
                return SystemRecord.from_json(parse_json(line)).time
    return 0.0


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
        alive = age < LOST_AFTER
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
