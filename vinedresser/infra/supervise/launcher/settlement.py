"""Settle a run whose supervisor is gone without an exit record."""

from __future__ import annotations

import os
import time
from contextlib import suppress
from pathlib import Path
from typing import TypeVar

from vinedresser.errors import CorruptData, KeyTaken, NotARun, StillRunning
from vinedresser.infra.catalog.stores import living_writer, may_be_alive
from vinedresser.objects import LocalStorage, Storage
from vinedresser.processes import (
    ProcessIdentity,
    is_alive,
    kill_group,
    kill_with,
    processes_with,
    wait_for_end,
)
from vinedresser.store.liveness import LOST_AFTER, claimer_is_gone, last_sign, read_record_or_none
from vinedresser.store.records import (
    ExitRecord,
    LaunchRecord,
    Record,
    RunRecord,
    StopRecord,
    SupervisorRecord,
    heartbeats,
    last_step,
    read_record,
    run_lock,
    started_for,
    write_first,
    write_record,
)

__all__ = ["abandon", "end_processes", "end_without_record", "settle"]

R = TypeVar("R", bound=Record)

# Seconds that a run without a heartbeat has to begin.
_STARTING = 60.0


def settle(directory: str | os.PathLike[str], *, grace: float | None = None) -> ExitRecord:
    """End a run that has no live supervisor, and record how it ended.

    A trainer whose supervisor is dead gets time for its checkpoint; then every process of the run
    is killed. Any number of processes may settle a run at the same time, and repeatedly. A damaged
    exit record stays as it is; the returned end is what else is known.

    Args:
        grace: seconds for the trainer's checkpoint; None: as it was launched.

    Returns:
        How the run ended.

    Raises:
        NotARun: there is no run.
        StillRunning: it has not ended: it is supervised, runs unsupervised or on another machine,
            or is about to be started.
        CorruptData: run.json cannot be read.
        StoreError: the directory cannot be read or written.
    """
    path = Path(directory)
    storage = LocalStorage(path)
    faults: list[str] = []
    run = read_record(storage, RunRecord)
    if run is None:
        raise NotARun(f"{directory}: not a run; it has no {RunRecord.KEY}")
    if ended := read_record_or_none(storage, ExitRecord, ExitRecord.KEY, faults):
        return ended
    lock = run_lock.share(path)
    if lock is None:
        raise StillRunning(f"{directory}: has not ended: its supervisor is alive")
    try:
        # Read again: the supervisor may have ended just before.
        faults.clear()
        if ended := read_record_or_none(storage, ExitRecord, ExitRecord.KEY, faults):
            return ended
        if _continues(path, storage, run):
            raise StillRunning(f"{directory}: has not ended: it runs, or is about to")
        _end_processes(path, storage, run, grace)
        if faults:
            return end_without_record(storage, faults[0])
        return write_first(storage, end_without_record(storage, _reason(path, storage)))
    finally:
        os.close(lock)


def abandon(directory: str | os.PathLike[str], reason: str) -> None:
    """Record that a run could not be started; its followers would wait for it as for its owner.

    A run that was started, or whose directory was removed, is left to `settle`.

    Args:
        reason: one sentence.

    Raises:
        StoreError: the directory cannot be read or written.
    """
    path = Path(directory)
    storage = LocalStorage(path)
    if not storage.exists(RunRecord.KEY):
        return
    lock = run_lock.share(path)
    if lock is None:
        return
    try:
        if not run_lock.was_taken(path) and not heartbeats(storage):
            # A damaged record is the run's end, too.
            with suppress(KeyTaken):
                end = ExitRecord("crashed", reason, time.time(), code=126)
                write_record(storage, end, exclusive=True)
    finally:
        os.close(lock)


def end_processes(directory: Path, run_id: str) -> None:
    """Kill what was started for a run whose directory was removed."""
    kill_with(started_for(directory, run_id))


def _continues(path: Path, storage: Storage, run: RunRecord) -> bool:
    """Return whether a run without a supervisor on this machine is alive or has yet to begin."""
    signs = heartbeats(storage)
    if any(
        is_alive(sign.identity()) is None and time.time() - sign.time < LOST_AFTER for sign in signs
    ):
        return True
    if run_lock.was_taken(path):
        return False
    launch = _read(storage, LaunchRecord)
    if launch is not None and storage.exists(StopRecord.KEY):
        return False
    if launch is None and signs:
        # The run ends with its process.
        return any(is_alive(sign.identity()) for sign in signs) or living_writer(path) is not None
    if launch is not None and launch.owner:
        return may_be_alive(ProcessIdentity(**launch.owner), path) is not None
    abandoned = launch is None and claimer_is_gone(storage)
    return not abandoned and time.time() - run.created < _STARTING


def _end_processes(path: Path, storage: Storage, run: RunRecord, grace: float | None) -> None:
    """End the processes that were started for this very run, wherever its records come from."""
    belongs = started_for(path, run.id)
    supervision = _read(storage, SupervisorRecord)
    recorded = [supervision.trainer, *supervision.peers] if supervision else []
    own = {*processes_with(belongs)}
    ranks = [one for one in (ProcessIdentity(**each) for each in recorded) if one.pid in own]
    if grace is None:
        launch = _read(storage, LaunchRecord)
        grace = launch.grace if launch else 0.0
    deadline = time.monotonic() + grace
    for rank in filter(is_alive, ranks):
        wait_for_end(rank, max(deadline - time.monotonic(), 0.0))
        kill_group(rank)
    kill_with(belongs)


def end_without_record(storage: Storage, reason: str) -> ExitRecord:
    """Return how a run ended whose end no process recorded, or whose exit record is damaged.

    Args:
        storage: storage of the run, which is over.
        reason: one sentence, unless it was asked to stop.

    Raises:
        StoreError: the storage refused a request.
    """
    # Closer to the end than the current time, which may be days later.
    ended = last_sign(storage).time or time.time()
    stop = _read(storage, StopRecord)
    if stop is not None:
        return ExitRecord("stopped", stop.reason, ended, last_step=last_step(storage), stop=stop)
    return ExitRecord("killed", reason, ended, last_step=last_step(storage))


def _reason(path: Path, storage: Storage) -> str:
    """Return why a run ended without an exit record."""
    if run_lock.was_taken(path):
        return "supervisor and trainer vanished"
    if storage.exists(LaunchRecord.KEY):
        return "prepared, but never started"
    return "the training vanished"


def _read(storage: Storage, kind: type[R]) -> R | None:
    """Return a record; None also if it cannot be read, which must not keep a run unsettled."""
    with suppress(CorruptData):
        return read_record(storage, kind)
    return None
