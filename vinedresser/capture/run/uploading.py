"""A run on an object store, as the training's process meets it: through its spool."""

from __future__ import annotations

import os
import shutil
import threading
import uuid
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Self

from vinedresser.processes import this_process
from vinedresser.store.relay_process import RelayProcess, recover_spools
from vinedresser.store.storage.spool import SpoolStorage, make_spool, read_target
from vinedresser.store.writing.record_queue import QueuePolicy

__all__ = ["Upload"]

# Seconds for which the end of a program waits for its upload, and after which it says so.
_PATIENCE, _QUIET = 60.0, 3.0


class Upload:
    """How a run gets from its spool to the object store where it belongs.

    Args:
        url: of the run in the store.
        folder: the spool.
        lock: of the spool, for the relay; None: somebody else sees to the upload.

    Attributes:
        url: of the run in the store.
        storage: the spool, for the writer.
    """

    def __init__(self, url: str, folder: Path, lock: int | None) -> None:
        self.url = url
        self.storage = SpoolStorage(folder)
        self._folder = folder
        self._lock = lock
        self._relay: RelayProcess | None = None

    @classmethod
    def of(cls, location: str | os.PathLike[str]) -> Self | None:
        """Return the upload of a run that is being made; None where it stays in its directory.

        Args:
            location: its directory.
        """
        target = read_target(Path(location))
        return None if target is None else cls(target.url, Path(location), None)

    @classmethod
    def create(cls, url: str, rank: int) -> Self:
        """Make a spool.

        Args:
            url: of the run in the store.
            rank: of this process; each has a spool of its own.

        Raises:
            OSError: it cannot be written.
        """
        owner = asdict(this_process())
        folder, lock = make_spool(url, uuid.uuid4().hex[:12], rank=rank or None, owner=owner)
        return cls(url, folder, lock)

    def claim(self) -> None:
        """Make the place in the store ours, and begin; rank 0 has written run.json to the spool.

        Raises:
            AlreadyARun: the store has another run in this place.
            SecondWriter: another process has this rank.
            NotARun: rank 0 did not make the run in time.
            StoreError: the store refused, or could not be reached.
        """
        assert self._lock is not None, "who made the spool claims"
        lock, self._lock = self._lock, None
        try:
            self._relay = RelayProcess(self._folder, lock)
        except BaseException:
            shutil.rmtree(self._folder, ignore_errors=True)
            raise

    def begin(self, policy: QueuePolicy, report: Callable[[str], object]) -> None:
        """Get ready for segments; what a crash left behind before is uploaded meanwhile.

        Args:
            policy: whether to wait for room when the spool is full, or to refuse.
            report: called, on a thread, with each sentence that a person should know.
        """
        self.storage.wait = policy == "block"
        self.storage.on_wait = report
        if self._relay is not None:
            self._relay.listen(report)
            threading.Thread(target=recover_spools, args=(report,), daemon=True).start()

    def end_soon(self) -> None:
        """Let nothing wait for room any more than the end of a program waits."""
        self.storage.patience = _PATIENCE

    def finish(self, report: Callable[[str], object]) -> None:
        """Wait for the upload, a minute at the most; what is not done by then goes on by itself.

        Args:
            report: called with what a person should know.
        """
        if self._relay is None or self._relay.wait(_QUIET):
            return
        if self._relay.alive:
            report(f"waiting for the upload to {self.url}, {_PATIENCE:.0f} s at the most")
            self._relay.wait(_PATIENCE - _QUIET)
        if not self._relay.done:
            self._relay.leave()
            report(
                f"not everything is in {self.url} yet; it waits in {self._folder}, and "
                "`vinedresser reconcile` uploads what is left there"
            )
