"""Removing runs, or their snapshots and checkpoints, that nobody needs any more.

A run is removed in an order that leaves no half of it: a note in the user's state folder says that
it is being removed, then MLflow is told, then its `run.json` is deleted, by which it is no run any
more, then all the rest. If that is interrupted, the next removal completes it. The note is not in
the store, whose files may come from others.
"""

from __future__ import annotations

import os
import shutil
import time
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import ClassVar

from vinedresser.errors import ConfigError, StoreError, VinedresserError
from vinedresser.explain.formatting import count
from vinedresser.infra.catalog.known_tracking import read_tracking
from vinedresser.infra.catalog.stores import is_owned, private_state
from vinedresser.infra.services.tracking.client import connected
from vinedresser.objects import LocalStorage, Location, Storage, open_storage
from vinedresser.processes import user_name
from vinedresser.store.reading.store_runs import run_record, runs_in
from vinedresser.store.records import (
    ExitRecord,
    PinRecord,
    Record,
    RunRecord,
    TrackingRecord,
    read_record,
    write_record,
)
from vinedresser.store.spool import spools
from vinedresser.store.status import Status, run_status
from vinedresser.tasks.config.retention_file import Policy, What
from vinedresser.tasks.parents.kinds import kind_of
from vinedresser.tasks.process_lock import process_lock

__all__ = [
    "Candidate",
    "Cleaned",
    "candidates",
    "clean",
    "complete",
    "named",
    "pin",
    "remove",
    "unpin",
]


@dataclass(frozen=True)
class _Removal(Record):
    """A note on a run of this user's that is being removed.

    Attributes:
        name: its name in the store.
        id: its id; a run with another one has taken its place.
    """

    KEY: ClassVar[str] = "removing"

    name: str
    id: str


# The tag by which MLflow's run says that the data is gone.
_TAG = "removed"


@dataclass(frozen=True)
class Candidate:
    """A run that a policy is about.

    Attributes:
        location: the run.
        ended: its end in seconds since the epoch, or its creation if the end is unknown.
        bytes: what would be freed; 0 if unknown, as on an object store.
        kept: why it stays; "": it is to be removed.
        state: how it ended; "" if that cannot be read.
    """

    location: Location
    ended: float
    bytes: int
    kept: str = ""
    state: str = ""


@dataclass(frozen=True)
class Cleaned:
    """What of a store a policy has removed, or would remove.

    Attributes:
        candidates: the runs that it is about, the oldest first.
        completed: runs whose removal had been interrupted, and is complete.
        failed: why a candidate could not be removed.
        spared: the number of runs that it is not about, by the reason.
        text: how much it is.
    """

    candidates: list[Candidate]
    completed: list[Location]
    failed: dict[Location, str]
    spared: Counter[str]
    text: str


def clean(store: Location, policy: Policy, *, delete: bool) -> Cleaned:
    """Return what a policy would remove from a store; remove it if told.

    Killed at any moment, it leaves no half of a run, and the next one completes it.

    Args:
        store: the store.
        policy: which.
        delete: remove it.

    Raises:
        ConfigError: see `candidates`.
        StillRunning: another process removes runs from it.
        StoreError: the store refused.
        TrackingError: MLflow cannot be told of a removal that had been interrupted.
    """
    if not delete:
        return _cleaned(store, policy, [], delete=False)
    with process_lock(private_state(store) / "removing.lock", "removal"):
        return _cleaned(store, policy, complete(store), delete=True)


def _cleaned(
    store: Location, policy: Policy, completed: list[Location], *, delete: bool
) -> Cleaned:
    spared = Counter[str]()
    failed: dict[Location, str] = {}
    found = candidates(store, policy, spared)
    for one in found:
        if delete and not one.kept:
            try:
                remove(one, policy.what)
            except VinedresserError as error:
                failed[one.location] = str(error)
    chosen = [one for one in found if not one.kept and one.location not in failed]
    of = "" if policy.what == "runs" else f" of their {policy.what}"
    freed = sum(one.bytes for one in chosen) / 1e6
    text = f"{count(len(chosen), 'run')}{of}, {freed:,.1f} MB"
    return Cleaned(found, completed, failed, spared, text)


def candidates(
    store: Location, policy: Policy, spared: Counter[str] | None = None
) -> list[Candidate]:
    """Return the runs of a store that a policy is about, the oldest first.

    Those that are to stay say why: they are pinned, not over, somebody's who may still settle them,
    unknown to MLflow, the origin of another run, or registered as a model.

    Args:
        store: the store; in that of a sweep or pruning, runs themselves are not removed.
        policy: which.
        spared: receives the number of runs that it is not about, by the reason.

    Raises:
        ConfigError: runs of a sweep or pruning are to be removed, or sizes are asked for on an
            object store.
        StoreError: the store refused.
    """
    if policy.what == "runs":
        _check_store(store)
    if policy.most_bytes is not None and not isinstance(store, Path):
        raise ConfigError(f"{store}: sizes are known in a directory only; leave out size")
    found = sorted(
        (_looked_at(run, policy.what) for run in runs_in(store)), key=lambda run: run.ended
    )
    origins = _origins(one.location for one in found)
    left = sum(one.bytes for one in found)
    chosen = []
    newest = {one.location for one in found[max(0, len(found) - policy.keep) :]}
    for one in found:
        kept = one.kept
        reason = f"among the newest {policy.keep} (keep)" if one.location in newest else ""
        reason = reason or _outside(one, policy, left)
        if reason:
            if spared is not None:
                spared[reason] += 1
            continue
        if policy.what == "runs" and not kept and one.location.name in origins:
            kept = f"{origins[one.location.name]} began from it"
        left -= 0 if kept else one.bytes
        chosen.append(replace(one, kept=kept))
    return chosen


def named(location: Location) -> Candidate:
    """Return a run that the user names as one to be removed, perhaps with the reason why it stays.

    Raises:
        ConfigError: it belongs to a sweep or pruning.
        NotARun: it is none.
        StoreError: the store refused.
    """
    if isinstance(location, Path) and location.name in ("", ".."):
        # The store of the working directory is not the working directory.
        location = location.resolve()
    run_record(open_storage(location))
    _check_store(location.parent)
    found = _looked_at(location, "runs")
    if not found.kept and (later := _origins(runs_in(location.parent)).get(location.name)):
        return replace(found, kept=f"{later} began from it")
    return found


def _outside(run: Candidate, policy: Policy, left: int) -> str:
    """Return why a policy is not about a run that is not among the newest; "" if it is.

    Args:
        left: bytes that the store takes once the older ones are removed.
    """
    if time.time() - run.ended < policy.older:
        return "too recent (older)"
    if policy.most_bytes is not None and left <= policy.most_bytes:
        return "there is room (size)"
    if policy.states and run.state not in policy.states:
        return "ended otherwise (state)"
    return ""


def remove(candidate: Candidate, what: What) -> None:
    """Remove what a candidate has of a kind.

    Args:
        candidate: a run that `candidates` or `named` has returned; what has changed since is
            looked at again.

    Raises:
        ConfigError: it is to stay.
        TrackingError: MLflow cannot be told; nothing was removed.
        StoreError: the store refused.
    """
    location = candidate.location
    storage = open_storage(location)
    kept = candidate.kept or _reason_to_keep(location, storage, run_status(storage), what)
    if kept:
        raise ConfigError(f"{location}: stays: {kept}")
    if what != "runs":
        for key in _keys(storage, what):
            storage.delete(key)
        if isinstance(location, Path):
            shutil.rmtree(location / what, ignore_errors=True)
        return
    run = read_record(storage, RunRecord)
    if run is None:
        return
    notes = LocalStorage(private_state(location.parent))
    key = f"{_Removal.KEY}/{run.id}.json"
    write_record(notes, _Removal(location.name, run.id), key=key)
    _finish(location, storage)
    notes.delete(key)


def complete(store: Location) -> list[Location]:
    """Complete the removals that were interrupted, and return them.

    A run that is still whole and that has to stay by now, such as a pinned one, stays.

    Raises:
        TrackingError: MLflow cannot be told.
        StoreError: the store refused.
    """
    notes = LocalStorage(private_state(store))
    completed = []
    for key in notes.list(f"{_Removal.KEY}/"):
        removal = read_record(notes, _Removal, key=key)
        if removal is None:
            # `vinedresser rm` has completed it meanwhile.
            continue
        location = store / removal.name
        storage = open_storage(location)
        if _is_left(location, storage, removal):
            _finish(location, storage)
            completed.append(location)
        notes.delete(key)
    return completed


def _is_left(location: Location, storage: Storage, removal: _Removal) -> bool:
    """Return whether a removal has left something that is still to be removed."""
    if isinstance(location, Path) and (location.is_symlink() or not location.is_dir()):
        # What a link in its place leads to was never the run.
        return False
    run = read_record(storage, RunRecord)
    if run is None:
        return isinstance(location, Path) or bool(storage.list(""))
    return run.id == removal.id and not _reason_to_keep(
        location, storage, run_status(storage), "runs"
    )


def pin(location: Location, why: str) -> None:
    """Keep a run for good.

    Args:
        why: why, or "".

    Raises:
        NotARun: it is none.
        StoreError: the store refused.
    """
    storage = open_storage(location)
    run_record(storage)
    write_record(storage, PinRecord(why, user_name(), time.time()))


def unpin(location: Location) -> None:
    """Let a run be removed again; do nothing if it is not pinned.

    Raises:
        StoreError: the store refused.
    """
    open_storage(location).delete(PinRecord.KEY)


def _check_store(store: Location) -> None:
    """Check that the runs of a store may be removed one by one."""
    if open_storage(store).exists(RunRecord.KEY):
        raise ConfigError(f"{store}: a run, not a store of runs; vinedresser rm removes it")
    if (kind := kind_of(store)) is not None:
        raise ConfigError(
            f"{store}: its runs belong to a {kind.WORD}, and go with the whole of it; of one that "
            "has ended, `vinedresser gc --what checkpoints` removes checkpoints"
        )


def _looked_at(location: Location, what: What) -> Candidate:
    """Return what is known of a run; one that cannot be read stays."""
    storage = open_storage(location)
    ended, kept, state = 0.0, "", ""
    try:
        status = run_status(storage)
        state = status.state
        run = read_record(storage, RunRecord)
        ended = status.ended or (run.created if run is not None else 0.0)
        kept = _reason_to_keep(location, storage, status, what)
    except VinedresserError as error:
        kept = str(error)
    return Candidate(location, ended, _size(location, what), kept, state)


def _reason_to_keep(location: Location, storage: Storage, status: Status, what: What) -> str:
    """Return why a run, or its snapshots or checkpoints, must stay; "" if they need not.

    Raises:
        CorruptData: a record that says so is damaged.
        StoreError: the store refused.
        TrackingError: MLflow cannot be asked whether a model of it is registered.
    """
    pinned = read_record(storage, PinRecord)
    if pinned is not None:
        return (
            "pinned"
            + (f" by {pinned.user}" if pinned.user else "")
            + (f": {pinned.why}" if pinned.why else "")
        )
    if isinstance(location, Path) and location.is_symlink():
        return "it is a link"
    if not status.over or is_owned(location) or not storage.exists(ExitRecord.KEY):
        return "it has not ended, or nothing has recorded its end"
    if not isinstance(location, Path) and spools(str(location)):
        return "its data is not uploaded yet"
    tracking = read_tracking(location)
    return _needed_by_mlflow(tracking, what) if tracking is not None else ""


def _needed_by_mlflow(tracking: TrackingRecord, what: What) -> str:
    if not tracking.settled:
        return "MLflow does not know its end: vinedresser reconcile"
    name = "" if what == "snapshots" else _registered(tracking)
    return f"the registered model {name} is from it" if name else ""


def _registered(tracking: TrackingRecord) -> str:
    """Return the name of a registered model of a run; "" if there is none."""
    with connected(tracking.uri) as client:
        found = client.search_model_versions(f"run_id = '{tracking.run_id}'")
    return str(found[0].name) if found else ""


def _origins(locations: Iterable[Location]) -> dict[str, str]:
    """Return the run that began from each run of which one is the retry."""
    origins = {}
    for location in locations:
        run = read_record(open_storage(location), RunRecord)
        if run is not None and run.remedy:
            origins[run.remedy["stopped"]] = location.name
    return origins


def _finish(location: Location, storage: Storage) -> None:
    """Remove a run whose removal has been recorded."""
    tracking = read_tracking(location)
    if tracking is not None:
        with connected(tracking.uri) as client:
            now = datetime.now(UTC).isoformat(timespec="seconds")
            client.set_tag(tracking.run_id, _TAG, now)
    storage.delete(RunRecord.KEY)
    # By the last one, a removal that is completed finds MLflow's run.
    for key in sorted(storage.list(""), key=lambda key: key == TrackingRecord.KEY):
        storage.delete(key)
    if isinstance(location, Path):
        # Folders, and what readers ignore.
        try:
            shutil.rmtree(location)
        except OSError as error:
            # Such as a file that another process has removed, or written, meanwhile.
            raise StoreError(f"{location}: not removed: {error.strerror}") from error


def _keys(storage: Storage, what: What) -> list[str]:
    """Return the keys of a run's snapshots or checkpoints, records before what they are about."""
    keys = storage.list(f"{what}/")
    return sorted(keys, key=lambda key: not key.endswith(".json"))


def _size(location: Location, what: What) -> int:
    """Return the bytes of a run, or of its snapshots or checkpoints, in a directory."""
    if not isinstance(location, Path):
        return 0
    return sum(_sizes(location if what == "runs" else location / what))


def _sizes(folder: Path) -> Iterator[int]:
    for parent, _, names in os.walk(folder):
        for name in names:
            try:
                yield os.lstat(os.path.join(parent, name)).st_size
            except FileNotFoundError:
                # Removed meanwhile.
                continue
