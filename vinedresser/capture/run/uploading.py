"""Uploading a run to an object store through a local spool."""

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
from vinedresser.store.records import RunRecord
from vinedresser.store.relay_process import RelayProcess, recover_spools
from vinedresser.store.spool import SpoolStorage, make_spool, read_target
from vinedresser.store.writing.record_queue import QueuePolicy

# Seconds that a program waits for its upload at exit, and until it reports that it is waiting.
_PATIENCE, _QUIET = 60.0, 3.0


class Upload:
    """The upload of a run from its spool to the object store.

    Args:
        folder: directory of the spool.
        lock: file descriptor of the spool's lock, for the relay; None: another process uploads.

    Attributes:
        url: URL of the run in the store.
        storage: the spool, for the writer.
    """

    def __init__(self, url: str, folder: Path, lock: int | None) -> None:
        self.url = url
        self.storage = SpoolStorage(folder, anchor=RunRecord.KEY)
        self._folder = folder
        self._lock = lock
        self._relay: RelayProcess | None = None

    @classmethod
    def of(cls, location: str | os.PathLike[str]) -> Self | None:
        """Return the upload of a launched run, or None if the run stays in its directory."""
        target = read_target(Path(location))
        return None if target is None else cls(target.url, Path(location), None)

    @classmethod
    def create(cls, url: str, rank: int) -> Self:
        """Create a spool.

        Args:
            url: URL of the run in the store.
            rank: rank of this process; each rank has its own spool.

        Raises:
            OSError: the spool cannot be written.
        """
        owner = asdict(this_process())
        folder, lock = make_spool(url, uuid.uuid4().hex[:12], rank=rank or None, owner=owner)
        return cls(url, folder, lock)

    def claim(self) -> None:
        """Claim the location in the store and start the relay.

        Rank 0 must have written run.json to the spool.

        Raises:
            AlreadyARun: the store has another run at this location.
            SecondWriter: another process has this rank.
            NotARun: rank 0 did not create the run in time.
            StoreError: the store failed or is unreachable.
        """
        assert self._lock is not None, "only the creator of the spool can claim"
        lock, self._lock = self._lock, None
        try:
            self._relay = RelayProcess(self._folder, lock)
        except BaseException:
            shutil.rmtree(self._folder, ignore_errors=True)
            raise

    def begin(self, policy: QueuePolicy, report: Callable[[str], object]) -> None:
        """Prepare for segments, and upload spools that crashed processes left behind.

        Args:
            policy: "block" waits for space when the spool is full; "drop" fails.
            report: called on a thread with each message for the user.
        """
        self.storage.wait = policy == "block"
        self.storage.on_wait = report
        if self._relay is not None:
            self._relay.listen(report)
            threading.Thread(target=recover_spools, args=(report,), daemon=True).start()

    def end_soon(self) -> None:
        """Limit the wait for space in the spool to the wait at exit."""
        self.storage.patience = _PATIENCE

    def finish(self, report: Callable[[str], object]) -> None:
        """Wait for the upload, at most a minute; the relay continues with the rest.

        Args:
            report: called with each message for the user.
        """
        if self._relay is None or self._relay.wait(_QUIET):
            return
        if self._relay.alive:
            report(f"waiting for the upload to {self.url}, at most {_PATIENCE:.0f} s")
            self._relay.wait(_PATIENCE - _QUIET)
        if not self._relay.done:
            self._relay.leave()
            report(
                f"the upload to {self.url} is not complete; the rest is in {self._folder}, and "
                "`vinedresser reconcile` uploads it if the relay cannot"
            )
