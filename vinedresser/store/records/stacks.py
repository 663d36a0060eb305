"""Where the processes of a run stand: the request for their stacks, and the answer."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

from vinedresser.store.json_values import check_time
from vinedresser.store.records.record import Record

__all__ = ["StacksRecord", "StacksRequest"]


@dataclass(frozen=True)
class StacksRequest(Record):
    """A request to the supervisor for the stacks of the ranks; it answers the first one.

    Attributes:
        time: seconds since the epoch.
    """

    KEY: ClassVar[str] = "stacks_request.json"

    time: float


@dataclass(frozen=True)
class StacksRecord(Record):
    """Where the processes of a run stood when they were asked.

    Attributes:
        time: seconds since the epoch.
        ranks: for each rank its "state" ("running", "stopped" by a signal, or "ended") and the
            "frames" of its main thread, the innermost first, as ``[file, line, function]``; no
            frames if it did not answer.
    """

    KEY: ClassVar[str] = "stacks.json"

    time: float
    ranks: list[dict[str, Any]]

    def __post_init__(self) -> None:
        """Refuse what are not stacks, since they become text."""
        check_time("time", self.time)
        for one in self.ranks:
            if one["state"] not in ("running", "stopped", "ended"):
                raise ValueError(f"state is {one['state']!r}")
            for file, line, function in one["frames"]:
                if not (isinstance(file, str) and type(line) is int and isinstance(function, str)):
                    raise TypeError(f"{(file, line, function)!r} is not a frame")
