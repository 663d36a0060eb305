"""Where the processes of a run stand: the request for their stacks, and the answer."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

from vinedresser.store.json_values import check_time
from vinedresser.store.records.record import Record

__all__ = ["StacksRecord", "StacksRequest"]


@dataclass(frozen=True)
class StacksRequest(Record):
    """A request to the supervisor for the stacks of the ranks, which removes it.

    Attributes:
        time: seconds since the epoch.
    """

    KEY: ClassVar[str] = "stacks_request.json"

    time: float


@dataclass(frozen=True)
class StacksRecord(Record):
    """Where the processes of a run stood when they were asked.

    Attributes:
        time: seconds since the epoch, of the request.
        ranks: for each rank its "state" ("running", "stopped" by a signal, or "ended"); the
            "frames" of its main thread, the innermost first, as ``[file, line, function]``, none
            if it did not answer; for how many seconds it has been "here", in the same frames
            whenever it was asked; and whether it, or one of its processes, "works" since then.
            If torch's flight recorder is on, the "collective" in which it is, in words.
    """

    KEY: ClassVar[str] = "stacks.json"

    time: float
    ranks: list[dict[str, Any]]

    def __post_init__(self) -> None:
        """Refuse what are not stacks, since they become text."""
        check_time("time", self.time)
        for rank in self.ranks:
            if rank["state"] not in ("running", "stopped", "ended"):
                raise ValueError(f"state is {rank['state']!r}")
            for file, line, function in rank["frames"]:
                if not (isinstance(file, str) and type(line) is int and isinstance(function, str)):
                    raise TypeError(f"{(file, line, function)!r} is not a frame")
            if not isinstance(rank.get("collective", ""), str):
                raise TypeError(f"{rank['collective']!r} is not the name of a collective")
            if not isinstance(rank.get("here", 0.0), float):
                raise TypeError(f"{rank['here']!r} is not a number of seconds")
