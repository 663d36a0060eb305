"""What others ask of the hook of a run while it trains, and its answers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

from vinedresser.store.records.record import Record

__all__ = [
    "CaptureChange",
    "CaptureRequest",
    "ClaimRecord",
    "WaitingRecord",
]


@dataclass(frozen=True)
class WaitingRecord(Record):
    """A reader waits for steps: until this time, commit them at once instead of in batches."""

    KEY: ClassVar[str] = "waiting.json"

    until: float


@dataclass(frozen=True)
class CaptureRequest(Record):
    """Somebody asks a run to capture something else from now on, or for some steps.

    Attributes:
        collections: the collections that change, with their new save configs.
        time: seconds since the epoch.
        steps: for how many steps; then all is as before. None: for good.
    """

    KEY: ClassVar[str] = "capture_requests"

    collections: dict[str, Any]
    time: float
    steps: int | None = None


@dataclass(frozen=True)
class CaptureChange(Record):
    """What a rank's hook made of a capture request.

    Attributes:
        step: the first step to which it applies.
        capture: the capture configuration in force from there on.
        refused: why nothing was changed, "" where it was.
        time: seconds since the epoch.
    """

    KEY: ClassVar[str] = "capture_changes"

    step: int
    capture: dict[str, Any]
    time: float
    refused: str = ""


@dataclass(frozen=True)
class ClaimRecord(Record):
    """Which processes write to a run whose script has no hook of its own; the first ones win.

    Attributes:
        processes: what they have in common: of one process its identity, of ranks their job.
    """

    KEY: ClassVar[str] = "claim.json"

    processes: str
