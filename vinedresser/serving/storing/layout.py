"""The folder of a service in a store, and the names in it.

<store>/<service>/
    service.json                        the service; without it, the folder counts as removed
    requests-<time>-<host>-<pid>-<token>/    a run directory: requests of one process
    inputs-<alert>-<time>-<host>-<pid>-<token>/      inputs that an alert asked for
    alerts/<number>.json                requests for inputs
    alert_answers/<number>/<process>.json    the answer of each process
    labels/<number>.json                labels that arrived later
"""

from __future__ import annotations

import os
import re
import time
from calendar import timegm
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar

from vinedresser.errors import ConfigError, KeyTaken
from vinedresser.objects import Location, Storage, open_storage, parse_location
from vinedresser.processes import ProcessIdentity
from vinedresser.store.json_values import check_time
from vinedresser.store.records import (
    Heartbeat,
    Record,
    RunRecord,
    check_format,
    name_fault,
    write_record,
)

__all__ = [
    "ANSWERS",
    "AlertAnswer",
    "AlertRequest",
    "INPUTS",
    "LabelsRecord",
    "MOST_INPUTS",
    "REQUESTS",
    "RequestsHeartbeat",
    "ServiceFolder",
    "ServiceRecord",
    "answer_key",
    "new_run_name",
    "numbered_key",
    "numbers_in",
    "process_name",
    "run_process",
    "run_started",
    "write_next",
]

# Kinds of run directories of a service: the beginnings of their names.
REQUESTS = "requests"
INPUTS = "inputs"
ANSWERS = "alert_answers"
# Maximum number of requests whose inputs an alert may ask for, and of following ones.
MOST_INPUTS = 10_000

_RUN = re.compile(
    rf"(?:{REQUESTS}|{INPUTS}-(?P<alert>\d{{6}}))-(?P<time>\d{{8}}T\d{{6}})(?P<millis>\d{{3}})"
    r"-(?P<process>[\w.]{1,40}-\d{1,10}-[0-9a-f]{8})",
    re.ASCII,
)
_STAMP = "%Y%m%dT%H%M%S"


@dataclass(frozen=True)
class ServiceRecord(Record):
    """A service whose requests are recorded.

    Attributes:
        name: name of the service and of its folder.
        created: seconds since the epoch.
        format_version: version of the layout.
    """

    KEY: ClassVar[str] = "service.json"

    name: str
    created: float
    format_version: int = 1

    def __post_init__(self) -> None:
        """Refuse what is not a time, and a layout that is not known."""
        check_time("created", self.created)
        check_format(self.format_version)


@dataclass(frozen=True)
class RequestsHeartbeat(Heartbeat):
    """The heartbeat of a process that records requests.

    Attributes:
        requests: number of requests committed in this run directory.
        bytes: size of the run directory, in bytes on disk.
        seen: number of requests of the process so far, recorded or not; None if it was not counted.
        recorded: number of them that were committed, in all its run directories; likewise.
    """

    requests: int = 0
    bytes: int = 0
    seen: int | None = None
    recorded: int | None = None


@dataclass(frozen=True)
class AlertRequest(Record):
    """A request to write the inputs of certain requests, and of some that follow.

    Attributes:
        alert: name of the alert; a second request of the same name is not made.
        following: number of further requests of each process whose inputs are to be written.
        until: end of the wait for further requests, seconds since the epoch.
    """

    KEY: ClassVar[str] = "alerts"

    alert: str
    ids: list[str]
    following: int
    until: float
    time: float

    def __post_init__(self) -> None:
        """Refuse more than an alert may ask for."""
        check_time("until", self.until)
        check_time("time", self.time)
        if not all(isinstance(one, str) for one in self.ids):
            raise TypeError("ids must be texts")
        if len(self.ids) > MOST_INPUTS or not 0 <= self.following <= MOST_INPUTS:
            raise ValueError(
                f"{len(self.ids)} ids and {self.following} following requests; at most "
                f"{MOST_INPUTS} each"
            )


@dataclass(frozen=True)
class AlertAnswer(Record):
    """The answer of one process to an `AlertRequest`.

    Attributes:
        found: number of requests of the alert whose inputs it had and has written.
        following: number of further requests whose inputs it has written.
        done: it writes nothing more for this alert.
        time: seconds since the epoch.
        refused: reason why it wrote less than it could, else "".
    """

    KEY: ClassVar[str] = ANSWERS

    process: dict[str, Any]
    found: int
    following: int
    done: bool
    time: float
    refused: str = ""

    def __post_init__(self) -> None:
        """Refuse what is not the identity of a process, or not a time."""
        ProcessIdentity(**self.process)
        check_time("time", self.time)


@dataclass(frozen=True)
class LabelsRecord(Record):
    """Labels that arrived after the responses.

    Attributes:
        ids: ids of the requests.
        labels: the label of each: a number, text or boolean.
        time: seconds since the epoch.
    """

    KEY: ClassVar[str] = "labels"

    ids: list[str]
    labels: list[Any] = field(default_factory=list)
    time: float = 0.0

    def __post_init__(self) -> None:
        """Refuse labels without ids."""
        check_time("time", self.time)
        if len(self.ids) != len(self.labels) or not all(isinstance(one, str) for one in self.ids):
            raise ValueError(f"{len(self.ids)} ids for {len(self.labels)} labels")
        if not all(isinstance(label, str | int | float) for label in self.labels):
            raise TypeError("labels must be numbers, texts or booleans")


class ServiceFolder:
    """The folder of a service.

    Raises:
        ConfigError: the name or the location is invalid.
        MissingDependency: the location is on S3, and the extra "s3" is not installed.
        StoreError: the configuration for S3 is invalid.
    """

    def __init__(self, store: str | os.PathLike[str], name: str) -> None:
        if fault := name_fault(name):
            raise ConfigError(f"name of the service: {fault}")
        # It refuses schemes that are not supported.
        open_storage(store)
        place = parse_location(os.path.expanduser(os.fspath(store).removeprefix("file://")))
        # A later change of the working directory has no effect.
        outer = Path(os.path.abspath(place)) if isinstance(place, Path) else place
        self.location: Location = outer / name
        self.name = name
        self.storage = open_storage(self.location, anchor=ServiceRecord.KEY)

    def ensure(self) -> None:
        """Create the folder unless it exists.

        Raises:
            StoreError: the storage refused.
        """
        if not self.storage.exists(ServiceRecord.KEY):
            with suppress(KeyTaken):
                write_record(self.storage, ServiceRecord(self.name, time.time()), exclusive=True)

    def run_storage(self, run: str) -> Storage:
        """Return the storage of one of its run directories."""
        return open_storage(self.location / run, anchor=RunRecord.KEY)

    def runs(self, kind: str) -> list[str]:
        """Return the names of its run directories of a kind, in the order of their start.

        Raises:
            StoreError: the storage refused.
        """
        found = (f"{kind}-{rest}" for rest in self.storage.folders(f"{kind}-"))
        return sorted((one for one in found if _RUN.fullmatch(one)), key=run_started)


def process_name(process: ProcessIdentity, token: str) -> str:
    """Return the name of a process in names of run directories.

    Args:
        token: eight hexadecimal digits, since a container may repeat host name and process id.
    """
    host = re.sub(r"[^\w.]", "_", process.host, flags=re.ASCII)[:40] or "_"
    return f"{host}-{process.pid}-{token}"


def new_run_name(kind: str, process: str, started: float) -> str:
    """Return a name for a run directory; see `process_name`."""
    stamp = time.strftime(_STAMP, time.gmtime(started))
    return f"{kind}-{stamp}{int(started * 1000) % 1000:03d}-{process}"


def run_started(name: str) -> float:
    """Return the start time of a run directory of a service from its name, to the millisecond.

    Raises:
        ValueError: it is not the name of one.
    """
    found = _parsed(name)
    return timegm(time.strptime(found["time"], _STAMP)) + int(found["millis"]) / 1000


def run_process(name: str) -> str:
    """Return the name of the process in the name of a run directory; see `process_name`.

    Raises:
        ValueError: it is not the name of one.
    """
    return _parsed(name)["process"]


def _parsed(name: str) -> re.Match[str]:
    found = _RUN.fullmatch(name)
    if found is None:
        raise ValueError(f"{name!r} is not the name of a run directory of a service")
    return found


def numbered_key(folder: str, number: int) -> str:
    """Return the key of a numbered record."""
    return f"{folder}/{number:06d}.json"


def numbers_in(storage: Storage, folder: str, after: int = -1) -> list[int]:
    """Return the numbers of the records in a folder above a number, sorted.

    Raises:
        StoreError: the storage refused.
    """
    begin = numbered_key(folder, after) if after >= 0 else ""
    found = (
        re.fullmatch(rf"{folder}/(\d{{6,}})\.json", key, re.ASCII)
        for key in storage.list(f"{folder}/", begin)
    )
    return sorted(number for one in found if one and (number := int(one[1])) > after)


def write_next(storage: Storage, record: Record) -> int:
    """Store a record under the number after the highest, and return the number.

    Raises:
        StoreError: the storage refused.
    """
    number = (numbers_in(storage, record.KEY) or [-1])[-1] + 1
    while True:
        try:
            write_record(storage, record, key=numbered_key(record.KEY, number), exclusive=True)
        except KeyTaken:
            number += 1
            continue
        return number


def answer_key(number: int, process: str) -> str:
    """Return the key of the answer of a process to an alert."""
    return f"{ANSWERS}/{number:06d}/{process}.json"
