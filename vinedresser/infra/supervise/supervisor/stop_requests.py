"""Sources of stop requests, which the supervisor passes on to the trainer."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable
from pathlib import Path

from vinedresser.errors import CorruptData
from vinedresser.infra.supervise.supervisor.arriving import ArrivingSignals
from vinedresser.infra.supervise.supervisor.ownership import Ownership
from vinedresser.objects import LocalStorage
from vinedresser.store.records import StopBy, StopRecord, read_record, run_lock, write_first


class StopRequests:
    """Stop requests from stop.json, from the end of the run's owner, and from signals.

    The last two are written to stop.json, too, so that other processes see them. A run whose
    directory is removed is stopped, too: nobody can learn how it continues.

    Args:
        storage: the run directory, anchored at its run.json; its lock is held.
        ownership: tells when the run has no owner left.
        signals: notes the signals, too.
        report: called with one sentence per problem.
    """

    def __init__(
        self,
        storage: LocalStorage,
        ownership: Ownership,
        signals: ArrivingSignals,
        report: Callable[[str], None],
    ) -> None:
        self._storage = storage
        self._ownership = ownership
        self._signals = signals
        self._report = report
        self._own: StopRecord | None = None
        self._lock = run_lock.peek(Path(storage.location))
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            signal.signal(number, lambda number, _: self._on_signal(number))

    def look(self) -> StopRecord | None:
        """Return the first stop request; None if there is none."""
        if reason := self._ownership.look():
            self._ask(StopRecord("owner", reason, time.time()))
        if self.removed:
            return self._own or StopRecord("owner", "its directory was removed", time.time())
        try:
            if self._own is not None:
                return write_first(self._storage, self._own)
            if self._storage.exists(StopRecord.KEY):
                return read_record(self._storage, StopRecord)
        except CorruptData as error:
            return StopRecord(by="person", reason=f"asked by {error}", time=time.time())
        except OSError as error:
            self._report(str(error))
            return self._own
        return None

    @property
    def removed(self) -> bool:
        """Whether the run directory was removed; one that was moved may come back."""
        return not os.fstat(self._lock).st_nlink and self._storage.removed

    def ask(self, by: StopBy, reason: str) -> None:
        """Ask the run to end, unless it was asked before."""
        self._ask(StopRecord(by, reason, time.time()))

    def _on_signal(self, number: int) -> None:
        self._signals.arrived(number)
        name = signal.Signals(number).name
        self._ask(StopRecord("person", f"the supervisor was sent {name}", time.time()))

    def _ask(self, record: StopRecord) -> None:
        self._own = self._own or record
