"""The ranks' signs of life, and how far they got."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass
from typing import Any, ClassVar

from vinedresser.errors import CorruptData
from vinedresser.processes import ProcessIdentity
from vinedresser.store.records.record import Record, read_record
from vinedresser.store.storage import Storage

__all__ = [
    "Heartbeat",
    "heartbeats",
    "last_step",
]


@dataclass(frozen=True)
class Heartbeat(Record):
    """A rank's sign of life, written every second by the hook's writer thread.

    Attributes:
        process: identity of the writing process (`ProcessIdentity`).
        last_step: last optimizer step that ended, -1 before the first.
        time: seconds since the epoch.
        dropped: step records that were not written, by a full queue or a full disk.
        closed: the writer ended in good order; nothing more will come.
        gone: its process has ended without a last word, as was seen where it ran.
    """

    KEY: ClassVar[str] = "heartbeat"

    rank: int
    process: dict[str, Any]
    last_step: int
    time: float
    dropped: int = 0
    closed: bool = False
    gone: bool = False

    def identity(self) -> ProcessIdentity:
        """Return who writes."""
        return ProcessIdentity(**self.process)


def heartbeats(storage: Storage) -> list[Heartbeat]:
    """Return the heartbeats of all ranks; one that cannot be read says nothing and is left out.

    Raises:
        StoreError: the storage refused.
    """
    found = []
    for key in storage.list("heartbeat/"):
        with suppress(CorruptData):
            found.append(read_record(storage, Heartbeat, key=key))
    return [heartbeat for heartbeat in found if heartbeat is not None]


def last_step(storage: Storage) -> int | None:
    """Return the last optimizer step that any rank ended, by its heartbeat; None before the first.

    Raises:
        StoreError: the storage refused.
    """
    last = max((heartbeat.last_step for heartbeat in heartbeats(storage)), default=-1)
    return None if last < 0 else last
