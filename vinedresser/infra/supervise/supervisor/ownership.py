"""The owner of a run, and how long the run may continue without one."""

from __future__ import annotations

import os
import selectors
import time
from collections.abc import Callable

from vinedresser.errors import CorruptData
from vinedresser.objects import Storage
from vinedresser.processes import ProcessIdentity, is_alive, watch
from vinedresser.store.records import LaunchRecord, OwnerRecord, WorkerRecord, read_record


class Ownership:
    """Tracks the owner of a run: the process that launched it, then one that adopts it.

    When the owner dies, another process has `LaunchRecord.patience` seconds to adopt the run by an
    `OwnerRecord`; otherwise the run has to end. A run never has two owners, since an adoption
    counts only once the previous owner is dead. A run on a cluster (`WorkerRecord`) also ends when
    its worker dies.

    Args:
        launch: names the owner and the patience.
        selector: calls the key's data when ready.
        report: called with one sentence per problem.
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
        """Return why the run has to end without an owner; "" if it has or may still get one."""
        if self._deserted or self._deadline is None or self._owner is None:
            return self._deserted
        heir = self._heir()
        if heir is not None and is_alive(heir):
            self._owner, self._deadline = heir, None
            self._watch(heir)
        elif time.monotonic() >= self._deadline:
            return f"its owner (pid {self._owner.pid}) is gone"
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
            self._report(f"the owner runs on {owner.host}: its end cannot be detected here")

    def _follow(self, process: ProcessIdentity, then: Callable[[], None]) -> None:
        """Call `then` when a process on this machine ends, or at once if it has ended."""
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
