"""Bounds on what a service keeps: the oldest run directories are removed."""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from vinedresser.errors import CorruptData
from vinedresser.objects import LocalStorage
from vinedresser.serving.storing.layout import (
    ANSWERS,
    INPUTS,
    REQUESTS,
    AlertRequest,
    LabelsRecord,
    RequestsHeartbeat,
    ServiceFolder,
    numbered_key,
    numbers_in,
    run_started,
)
from vinedresser.store.liveness import process_alive
from vinedresser.store.records import RunRecord, heartbeat_key, read_record

__all__ = ["enforce_limits", "is_over", "remove_run"]

# Seconds without a heartbeat after which a process of another machine counts as gone.
_GONE_AFTER = 3600.0
# What a run directory counts for if no heartbeat says its size.
_UNKNOWN = 1 << 16


class _Kept(NamedTuple):
    """A run directory, its last heartbeat or start, and its size in bytes."""

    name: str
    time: float
    size: int
    over: bool


def is_over(beat: RequestsHeartbeat | None, now: float) -> bool:
    """Return whether the process that wrote a heartbeat writes nothing more to its run directory.

    Args:
        beat: the heartbeat; None if there is none yet.
        now: seconds since the epoch.
    """
    if beat is None:
        return False
    if beat.closed or beat.gone:
        return True
    alive = process_alive(beat.process)
    return now - beat.time > _GONE_AFTER if alive is None else not alive


def enforce_limits(
    folder: ServiceFolder, *, most_bytes: int, most_seconds: float, each_bytes: int, own: set[str]
) -> list[str]:
    """Remove the oldest run directories of a service until the limits hold, and old records.

    Run directories that a living process writes are left alone.

    Args:
        most_bytes: bytes that all its run directories may have.
        most_seconds: age at which a run directory is removed, and labels and alerts.
        each_bytes: size at which a run directory is closed; none counts for more than twice of it,
            whatever its heartbeat says.
        own: names of run directories that this process writes.

    Returns:
        The names of the removed run directories.

    Raises:
        StoreError: the storage refused.
    """
    now = time.time()
    kept = sorted(_runs(folder, now, 2 * each_bytes, own), key=lambda run: run.time)
    total = sum(run.size for run in kept)
    removed = []
    for run in kept:
        if run.over and (total > most_bytes or now - run.time > most_seconds):
            remove_run(folder, run.name)
            removed.append(run.name)
            total -= run.size
    _remove_records(folder, now - most_seconds)
    return removed


def remove_run(folder: ServiceFolder, run: str) -> None:
    """Remove a run directory of a service; the part of it that makes it a run goes first.

    Args:
        run: name of the run directory.

    Raises:
        StoreError: the storage refused.
        ValueError: it is not the name of one.
    """
    run_started(run)
    storage = folder.run_storage(run)
    storage.delete(RunRecord.KEY)
    if isinstance(storage, LocalStorage):
        place = Path(folder.location) / run
        # A link is not followed: it is no directory of ours.
        if not os.path.islink(place):
            # Another process may remove it, too.
            shutil.rmtree(place, ignore_errors=True)
        return
    for key in storage.list(""):
        storage.delete(key)


def _runs(folder: ServiceFolder, now: float, most: int, own: set[str]) -> Iterator[_Kept]:
    for name in folder.runs(REQUESTS) + folder.runs(INPUTS):
        if name in own:
            yield _Kept(name, now, _UNKNOWN, False)
            continue
        storage = folder.run_storage(name)
        try:
            beat = read_record(storage, RequestsHeartbeat, key=heartbeat_key(0))
        except CorruptData:
            beat = None
        # Without a heartbeat: it is being created, or was removed half-way, or is damaged.
        started = run_started(name)
        over = is_over(beat, now) if beat is not None else now - started > _GONE_AFTER
        size = _UNKNOWN if beat is None else min(max(beat.bytes, 0), most)
        yield _Kept(name, started if beat is None else min(beat.time, now), size, over)


def _remove_records(folder: ServiceFolder, before: float) -> None:
    """Remove labels and alerts from before a time, but not the last: new ones are numbered on."""
    storage = folder.storage
    kinds: tuple[type[LabelsRecord | AlertRequest], ...] = (LabelsRecord, AlertRequest)
    for kind in kinds:
        for number in numbers_in(storage, kind.KEY)[:-1]:
            key = numbered_key(kind.KEY, number)
            try:
                record = read_record(storage, kind, key=key)
            except CorruptData:
                continue
            # They are numbered in the order of time.
            if record is None or record.time >= before:
                break
            if kind is AlertRequest:
                for answer in storage.list(f"{ANSWERS}/{number:06d}/"):
                    storage.delete(answer)
            storage.delete(key)
