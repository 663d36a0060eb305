"""Wait for the end of a run."""

from __future__ import annotations

import os
import time
from contextlib import suppress
from pathlib import Path

from vinedresser.errors import CorruptData
from vinedresser.objects import LocalStorage
from vinedresser.store.records import ExitRecord, read_record, run_lock

__all__ = ["supervisor_alive", "wait_for_exit"]

# Checking whether the exit record exists costs 5 µs.
_TICK = 0.02
# Seconds between two checks that a process is left to write it.
_LIFE_CHECK = 0.5


def supervisor_alive(directory: str | os.PathLike[str]) -> bool:
    """Return whether the run has a live supervisor."""
    return run_lock.is_held(Path(directory))


def wait_for_exit(
    directory: str | os.PathLike[str], timeout: float | None = None
) -> ExitRecord | None:
    """Wait for the exit record of a started run.

    Args:
        timeout: maximum number of seconds to wait; None: no limit.

    Returns:
        The record; None after the timeout, or if no process is left to write it (see `settle`), or
        if it is damaged and no process is left.

    Raises:
        StoreError: the directory cannot be read.
    """
    path = Path(directory)
    storage = LocalStorage(path)
    deadline = time.monotonic() + (float("inf") if timeout is None else timeout)
    next_check = time.monotonic()
    while True:
        now = time.monotonic()
        deserted = now >= next_check and not run_lock.is_held(path)
        # In this order: a supervisor writes the record before it ends.
        if storage.exists(ExitRecord.KEY):
            with suppress(CorruptData):
                return read_record(storage, ExitRecord)
        if deserted or now >= deadline:
            return None
        if now >= next_check:
            next_check = now + _LIFE_CHECK
        time.sleep(min(_TICK, deadline - now))
