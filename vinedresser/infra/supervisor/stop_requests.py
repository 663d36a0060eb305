"""Everything by which a run is asked to end, for its supervisor to pass on."""

from __future__ import annotations

import os
import selectors
import signal
import time
from collections.abc import Callable

from vinedresser.errors import Damaged
from vinedresser.infra.processes import ProcessIdentity, is_alive, watch
from vinedresser.infra.run_directory import StopRecord, read_record, write_first
from vinedresser.infra.storage import Storage

__all__ = ["StopRequests"]


class StopRequests:
    """stop.json, the end of the run's owner, and signals to the supervisor.

    The last two are written to stop.json as well, so that all others know.

    Args:
        storage: the run directory.
        owner: the process for which the run goes on; None when there is none.
        selector: calls the key's data when ready.
        report: told in one sentence what goes wrong.
    """

    def __init__(
        self,
        storage: Storage,
        owner: ProcessIdentity | None,
        selector: selectors.BaseSelector,
        report: Callable[[str], None],
    ) -> None:
        self._storage = storage
        self._selector = selector
        self._report = report
        self._own: StopRecord | None = None
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            signal.signal(number, lambda number, _: self._on_signal(number))
        if owner is not None:
            self._watch(owner)

    def look(self) -> StopRecord | None:
        """Return who asks first, None as long as nobody does."""
        try:
            if self._own is not None:
                return write_first(self._storage, self._own)
            if self._storage.exists(StopRecord.KEY):
                return read_record(self._storage, StopRecord)
        except Damaged as error:
            return StopRecord(by="person", reason=f"asked by {error}", time=time.time())
        except OSError as error:
            self._report(str(error))
            return self._own
        return None

    def _on_signal(self, number: int) -> None:
        name = signal.Signals(number).name
        self._ask(StopRecord("person", f"the supervisor was sent {name}", time.time()))

    def _watch(self, owner: ProcessIdentity) -> None:
        if is_alive(owner) is None:
            self._report(f"the owner runs on {owner.host}: its end will go unnoticed here")
            return
        descriptor = watch(owner)
        if descriptor is None:
            self._on_owner_gone(owner)
            return

        def on_end() -> None:
            self._selector.unregister(descriptor)
            os.close(descriptor)
            self._on_owner_gone(owner)

        self._selector.register(descriptor, selectors.EVENT_READ, on_end)

    def _on_owner_gone(self, owner: ProcessIdentity) -> None:
        reason = f"the process for which it ran (pid {owner.pid}) is gone"
        self._ask(StopRecord("owner", reason, time.time()))

    def _ask(self, record: StopRecord) -> None:
        self._own = self._own or record
