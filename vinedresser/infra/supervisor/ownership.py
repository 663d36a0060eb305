"""For whom a run goes on, and how long it does when that process is gone."""

from __future__ import annotations

import os
import selectors
import time
from collections.abc import Callable

from vinedresser.errors import CorruptData
from vinedresser.processes import ProcessIdentity, is_alive, watch
from vinedresser.store.records import (
    LaunchRecord,
    OwnerRecord,
    WorkerRecord,
    read_record,
)
from vinedresser.store.storage import Storage

__all__ = ["Ownership"]


class Ownership:
    """The owner of a run: the one that it was launched for, then whoever adopts it.

    When the owner is gone the run has a while to be adopted (`LaunchRecord.patience`), which is
    asked for by `OwnerRecord`; then it is to end. So it never has two owners: the first one is dead
    by the time at which the second one counts. Where a worker of a cluster runs it
    (`WorkerRecord`), it ends with that one, too.

    Args:
        storage: the run directory.
        launch: says who is the owner, and how long it is done without.
        selector: calls the key's data when ready.
        report: told in one sentence what goes wrong.
    """

    def __init__(
        self,
        storage: Storage,
        launch: LaunchRecord,
        selector: selectors.BaseSelector,
        report: Callable[[str], None],
    ) -> None:
        self._storage = storage
        self._patience = launch.patience
        self._selector = selector
        self._report = report
        self._deadline: float | None = None
        self._deserted = ""
        self._owner = ProcessIdentity(**launch.owner) if launch.owner else None
        worker = read_record(storage, WorkerRecord)
        if worker is not None:
            self._follow(ProcessIdentity(**worker.process), self._on_desertion)
        if self._owner is not None:
            self._watch(self._owner, quiet=worker is not None)

    def look(self) -> str:
        """Return why the run is to end for want of an owner; "" where it has or may get one."""
        if self._deserted or self._deadline is None or self._owner is None:
            return self._deserted
        heir = self._heir()
        if heir is not None and is_alive(heir):
            self._owner, self._deadline = heir, None
            self._watch(heir)
        elif time.monotonic() >= self._deadline:
            return f"the process for which it ran (pid {self._owner.pid}) is gone"
        return ""

    def _heir(self) -> ProcessIdentity | None:
        try:
            record = read_record(self._storage, OwnerRecord)
        except (CorruptData, OSError) as error:
            self._report(str(error))
            return None
        return ProcessIdentity(**record.process) if record is not None else None

    def _watch(self, owner: ProcessIdentity, *, quiet: bool = False) -> None:
        if is_alive(owner) is not None:
            self._follow(owner, self._on_end)
        elif not quiet:
            self._report(f"the owner runs on {owner.host}: its end will go unnoticed here")

    def _follow(self, process: ProcessIdentity, then: Callable[[], None]) -> None:
        """Have something done when a process of this machine ends, or at once if it has ended."""
        descriptor = watch(process)
        if descriptor is None:
            then()
            return

        def on_end() -> None:
            self._selector.unregister(descriptor)
            os.close(descriptor)
            then()

        self._selector.register(descriptor, selectors.EVENT_READ, on_end)

    def _on_end(self) -> None:
        self._deadline = time.monotonic() + self._patience

    def _on_desertion(self) -> None:
        self._deserted = "the worker that ran it is gone"
