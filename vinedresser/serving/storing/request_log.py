"""Writing requests into run directories, one after the other."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace

from vinedresser.errors import RunRemoved, SecondWriter
from vinedresser.objects import LocalStorage, Storage
from vinedresser.processes import ProcessIdentity
from vinedresser.serving.storing.layout import (
    RequestsHeartbeat,
    ServiceFolder,
    ServiceRecord,
    new_run_name,
)
from vinedresser.store.records import ExitRecord, heartbeat_key, new_run, write_record
from vinedresser.store.step_record import StepRecord
from vinedresser.store.writing.committing import Committer

__all__ = ["OpenLog", "RequestLog"]

# A file system allocates blocks, and a commit makes two files.
_BLOCK = 4096


@dataclass
class OpenLog:
    """The run directory that is being written.

    Attributes:
        committer: commits its segments.
        started: start, seconds since the epoch.
        steps: number of committed steps.
        requests: number of committed requests.
        bytes: size on disk in bytes.
        beaten: time of the last heartbeat, on the monotonic clock.
    """

    name: str
    storage: Storage
    committer: Committer
    started: float
    steps: int = 0
    requests: int = 0
    bytes: int = 0
    beaten: float = 0.0


class RequestLog:
    """Writes steps of requests; a new run directory begins whenever one is full or old.

    Not thread-safe. A run directory is created by the first step, or to tell of requests that were
    not recorded, so a process without requests leaves nothing.

    Args:
        kind: beginning of the names of its run directories.
        label: its name in them; see `process_name`.
        most_bytes: size at which a run directory is full.
        most_seconds: age at which it is closed.
        beat_seconds: time between heartbeats.

    Attributes:
        seen: number of requests of the process so far, recorded or not.
        dropped: number of chosen ones that were lost.
    """

    def __init__(
        self,
        folder: ServiceFolder,
        kind: str,
        process: ProcessIdentity,
        label: str,
        *,
        most_bytes: int,
        most_seconds: float,
        beat_seconds: float,
    ) -> None:
        self.seen = self.dropped = 0
        self._folder = folder
        self._kind = kind
        self._process = process
        self._label = label
        self._most_bytes = most_bytes
        self._most_seconds = most_seconds
        self._beat_seconds = beat_seconds
        self._open: OpenLog | None = None
        self._begun = 0.0
        self._reported_dropped = 0
        self._recorded = self._told_of = 0

    @property
    def run(self) -> str:
        """Name of the run directory that is being written; "" if there is none."""
        return self._open.name if self._open is not None else ""

    @property
    def next_step(self) -> int:
        """Number of the next step."""
        return self._open.steps if self._open is not None else 0

    def append(self, records: Sequence[StepRecord], requests: int) -> None:
        """Commit steps, so that readers see all of them or none.

        Args:
            records: at least one, numbered from `next_step`.
            requests: number of requests in them.

        Raises:
            RunRemoved: the folder of the service was removed.
            StoreError: the storage refused; the same steps can be appended again.
            CorruptData, TypeError, ValueError: a step is invalid.
        """
        log = self._open or self._begin()
        self._open = log
        dropped = self.dropped
        try:
            log.committer.commit(records, dropped - self._reported_dropped)
        except (RunRemoved, SecondWriter):
            # Somebody removed this run directory, or another process uses it: begin another one.
            self._open = log = self._begin()
            records = [replace(one, step=number) for number, one in enumerate(records)]
            log.committer.commit(records, dropped - self._reported_dropped)
        self._reported_dropped = dropped
        log.steps += len(records)
        log.requests += requests
        self._recorded += requests
        log.bytes += 3 * _BLOCK + sum(record.nbytes() for record in records)

    def beat(self, *, now: bool = False) -> None:
        """Write the heartbeat if it is due, and close a run directory that is full or old.

        Args:
            now: write it if there have been requests since the last one, also if it is not due.

        Raises:
            StoreError: the storage refused.
        """
        log = self._opened()
        if log is None:
            return
        if log.bytes >= self._most_bytes or time.time() - log.started >= self._most_seconds:
            self.close()
        elif (now and self.seen > self._told_of) or (
            time.monotonic() - log.beaten >= self._beat_seconds
        ):
            log.beaten = time.monotonic()
            self._beat(log)

    def close(self) -> None:
        """Close the run directory that is being written, if there is one.

        Raises:
            StoreError: the storage refused.
        """
        log, self._open = self._opened(), None
        if log is not None:
            self._beat(log, closed=True)
            write_record(log.storage, ExitRecord("finished", "", time.time()), exclusive=True)

    def _opened(self) -> OpenLog | None:
        """Return the run directory that is being written; a new one for requests to tell of."""
        if self._open is None and self.seen > self._told_of:
            self._open = self._begin()
        return self._open

    def _begin(self) -> OpenLog:
        """Create a run directory.

        Raises:
            StoreError: the storage refused.
        """
        storage = self._folder.storage
        if isinstance(storage, LocalStorage) and storage.removed:
            raise RunRemoved(
                f"{self._folder.location}: the folder of the service was removed: it has no "
                f"{ServiceRecord.KEY}"
            )
        # To the millisecond, names differ.
        self._begun = started = max(time.time(), self._begun + 0.001)
        name = new_run_name(self._kind, self._label, started)
        place = self._folder.run_storage(name)
        record = replace(new_run(self._folder.name), kind="requests", created=started)
        write_record(place, record, exclusive=True)
        return OpenLog(name, place, Committer(place, 0), started)

    def _beat(self, log: OpenLog, *, closed: bool = False) -> None:
        beat = RequestsHeartbeat(
            rank=0,
            process=asdict(self._process),
            last_step=-1,
            time=time.time(),
            dropped=self.dropped,
            closed=closed,
            requests=log.requests,
            bytes=log.bytes,
            seen=self.seen,
            recorded=self._recorded,
        )
        write_record(log.storage, beat, key=heartbeat_key(0))
        self._told_of = self.seen
