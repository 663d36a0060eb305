"""How the supervisor of a run and the hosts of its ranks talk to each other."""

from __future__ import annotations

import re
import signal
from dataclasses import dataclass, field
from typing import Any, ClassVar

from vinedresser.processes import ProcessIdentity
from vinedresser.store.json_values import check_time
from vinedresser.store.records.record import Record
from vinedresser.store.records.stacks import StacksRecord

__all__ = ["HostOrders", "HostReport"]


@dataclass(frozen=True)
class HostReport(Record):
    """What a host says about its ranks; written every second, and when something has changed.

    Attributes:
        process: identity of the process that starts the ranks (`ProcessIdentity`).
        sign: counts up with each report; no clocks of several hosts are compared.
        address: address at which other hosts reach it.
        ports: ports that it has reserved, one for each of its ranks.
        cores: number of cores that its ranks may use.
        done: number of orders that it has carried out.
        ranks: of each rank that it has started "code", its exit code or the negative number of a
            signal, null while it runs; "text", the last line of its error; "ago", the seconds since
            it failed, null if it has not; and "late", whether it was still running when it was
            asked to end because another one had failed.
        stacks: where its ranks stand, once it was asked; see `StacksRecord.ranks`.
        told: why it ends by itself, such as a signal that it was sent; else "".
        problem: why it could not start its ranks; else "".
        over: all of its ranks have ended; this is the last report.
    """

    KEY: ClassVar[str] = "hosts"

    process: dict[str, Any]
    sign: int
    address: str
    ports: list[int]
    cores: int
    done: int = 0
    ranks: list[dict[str, Any]] = field(default_factory=list)
    stacks: list[dict[str, Any]] = field(default_factory=list)
    told: str = ""
    problem: str = ""
    over: bool = False

    def __post_init__(self) -> None:
        """Refuse what is not a report, since it decides how the run ends."""
        ProcessIdentity(**self.process)
        for text in (self.address, self.told, self.problem):
            if not isinstance(text, str):
                raise TypeError(f"{text!r} is not text")
        for number in (self.sign, self.cores, self.done, *self.ports):
            if type(number) is not int:
                raise TypeError(f"{number!r} is not a number")
        StacksRecord(0.0, self.stacks)
        for rank in self.ranks:
            if not (rank["code"] is None or type(rank["code"]) is int):
                raise TypeError(f"{rank['code']!r} is not an exit code")
            if not (rank["ago"] is None or isinstance(rank["ago"], float)):
                raise TypeError(f"{rank['ago']!r} is not a number of seconds")
            if not isinstance(rank["text"], str):
                raise TypeError(f"{rank['text']!r} is not text")


@dataclass(frozen=True)
class HostOrders(Record):
    """What the supervisor of a run tells the hosts; written every second, and when it has changed.

    Attributes:
        sign: counts up with each writing; a host ends its ranks when it stops.
        workers: address and port of each rank once all hosts have reported: the start signal.
        orders: what to do, in order: ``["signal", number]``, ``["end_peers"]``, ``["stacks"]`` or
            ``["kill"]``.
        time: when it was written, in seconds since the epoch; not for the hosts, whose clocks may
            differ.
    """

    KEY: ClassVar[str] = "host_orders.json"

    sign: int
    workers: list[str] = field(default_factory=list)
    orders: list[list[Any]] = field(default_factory=list)
    time: float = 0.0

    def __post_init__(self) -> None:
        """Refuse what are not orders, since a host carries them out."""
        check_time("time", self.time)
        for worker in self.workers:
            if not re.fullmatch(r"[0-9.]+:\d+", worker):
                raise ValueError(f"{worker!r} is not an address and a port")
        for name, *arguments in self.orders:
            # Real-time signals have no names.
            known = name == "signal" and arguments in [[one] for one in signal.valid_signals()]
            if not known and (arguments or name not in ("end_peers", "stacks", "kill")):
                raise ValueError(f"{[name, *arguments]!r} is not an order")
