"""Heartbeats of the ranks, with their last step."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass
from typing import Any, ClassVar

from vinedresser.errors import CorruptData
from vinedresser.objects import Storage
from vinedresser.processes import ProcessIdentity
from vinedresser.store.json_values import check_time
from vinedresser.store.records.listing import known_keys
from vinedresser.store.records.record import Record, read_record

__all__ = ["Heartbeat", "heartbeats", "last_step", "lost_records"]


@dataclass(frozen=True)
class Heartbeat(Record):
    """The heartbeat of a rank, written every second by the hook's writer thread.

    Attributes:
        process: identity of the writing process (`ProcessIdentity`).
        last_step: last completed optimizer step, -1 before the first.
        time: seconds since the epoch.
        dropped: number of step records lost to a full queue or disk.
        closed: the writer shut down cleanly and writes nothing more.
        gone: the process ended without closing, as observed on its machine.
        stopped: the hook ended the training because it was asked to stop.
        collective: the collective operation in which the rank is while no step ends, in words;
            only if torch's flight recorder is on.
    """

    KEY: ClassVar[str] = "heartbeat"

    rank: int
    process: dict[str, Any]
    last_step: int
    time: float
    dropped: int = 0
    closed: bool = False
    gone: bool = False
    stopped: bool = False
    collective: str = ""

    def __post_init__(self) -> None:
        """Refuse what is not the identity of a process, or not a time."""
        self.identity()
        check_time("time", self.time)

    def identity(self) -> ProcessIdentity:
        """Return the identity of the writing process."""
        return ProcessIdentity(**self.process)


def heartbeats(storage: Storage) -> list[Heartbeat]:
    """Return the heartbeats of all ranks, without corrupt ones.

    Raises:
        StoreError: the storage refused.
    """
    found = []
    for key in known_keys(storage, Heartbeat.KEY, []):
        with suppress(CorruptData):
            found.append(read_record(storage, Heartbeat, key=key))
    return [heartbeat for heartbeat in found if heartbeat is not None]


def last_step(storage: Storage) -> int | None:
    """Return the last optimizer step completed by any rank; None before the first.

    Raises:
        StoreError: the storage refused.
    """
    last = max((heartbeat.last_step for heartbeat in heartbeats(storage)), default=-1)
    return None if last < 0 else last


def lost_records(storage: Storage) -> int:
    """Return the number of step records that the ranks lost to a full queue or disk.

    Raises:
        StoreError: the storage refused.
    """
    return sum(heartbeat.dropped for heartbeat in heartbeats(storage))
