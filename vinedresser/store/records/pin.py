"""A record that keeps a run from being removed."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from vinedresser.store.records.record import Record


@dataclass(frozen=True)
class PinRecord(Record):
    """A run that is never removed.

    Attributes:
        why: why it is kept, or "".
        user: name of the user who pinned it.
        time: seconds since the epoch.
    """

    KEY: ClassVar[str] = "pin.json"

    why: str
    user: str
    time: float
