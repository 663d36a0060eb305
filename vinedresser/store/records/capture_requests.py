"""Requests to the hook of a training run, and its answers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

from vinedresser.store.records.record import Record

__all__ = ["CaptureChange", "CaptureRequest", "ClaimRecord", "WaitingRecord"]


@dataclass(frozen=True)
class WaitingRecord(Record):
    """A waiting reader: commit steps immediately until this time, not in batches."""

    KEY: ClassVar[str] = "waiting.json"

    until: float


@dataclass(frozen=True)
class CaptureRequest(Record):
    """A request to change what a run captures.

    Attributes:
        collections: the changed collections, with their new save configs.
        time: seconds since the epoch.
        steps: number of steps after which the change is reverted; None: permanent.
    """

    KEY: ClassVar[str] = "capture_requests"

    collections: dict[str, Any]
    time: float
    steps: int | None = None


@dataclass(frozen=True)
class CaptureChange(Record):
    """The answer of a rank's hook to a `CaptureRequest`.

    Attributes:
        step: first step with the new configuration.
        capture: the capture configuration from this step on.
        refused: reason for a refusal, else "".
        time: seconds since the epoch.
    """

    KEY: ClassVar[str] = "capture_changes"

    step: int
    capture: dict[str, Any]
    time: float
    refused: str = ""


@dataclass(frozen=True)
class ClaimRecord(Record):
    """The processes that write a run whose script creates no hook; the first ones win.

    Attributes:
        processes: identity of a single process, or id of the job of several ranks.
    """

    KEY: ClassVar[str] = "claim.json"

    processes: str
