"""Removing runs, or their snapshots and checkpoints, that nobody needs any more.

A run is removed in an order that leaves no half of it: a note in the user's state folder says that
it is being removed, then MLflow is told, then its `run.json` is deleted, by which it is no run any
more, then all the rest. If that is interrupted, the next removal completes it. The note is not in
the store, whose files may come from others.

A sweep or pruning goes with all of its runs, or stays with them. In a directory it is renamed
before anything of it is deleted, so that it goes at once; on an object store its record goes first.
It is deleted without its lock: NFS keeps the folder of a file that is open.
"""

from __future__ import annotations

import os
import shutil
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import ClassVar

from vinedresser.errors import (
    ConfigError,
    StillRunning,
    StoreError,
    UntrustedTracking,
    VinedresserError,
)
from vinedresser.explain.formatting import count
from vinedresser.infra.catalog.known_tracking import read_tracking, require_known
from vinedresser.infra.catalog.stores import local_state, private_state
from vinedresser.infra.services.tracking.client import connected
from vinedresser.objects import LocalStorage, Location, Storage, open_storage
from vinedresser.objects.base import TEMPORARY
from vinedresser.store.reading.store_runs import run_record, runs_in
from vinedresser.store.records import (
    ParentRecord,
    Record,
    RunRecord,
    TrackingRecord,
    read_record,
    write_record,
)
from vinedresser.store.status import run_status
from vinedresser.tasks.config.retention_file import Policy, What
from vinedresser.tasks.lifecycle.mlflow_run import original_of
from vinedresser.tasks.parents.kinds import (
    is_joined,
    kind_of,
    parent_at,
    parent_state,
    parents_in,
)
from vinedresser.tasks.process_lock import process_lock
from vinedresser.tasks.retention_reasons import (
    Dependents,
    reason_to_keep,
    reason_to_keep_parent,
)

__all__ = [
    "Candidate",
    "Cleaned",
    "candidates",
    "clean",
    "complete",
    "named",
    "remove",
    "remove_named",
]


@dataclass(frozen=True)
class _Removal(Record):
    """A note on a run, sweep or pruning of this user's that is being removed.

    Attributes:
        name: its name in the store.
        id: its id; one with another id has taken its place.
        word: what it is.
    """

    KEY: ClassVar[str] = "removing"

    name: str
    id: str
    word: str = "run"


# Gc and flows hold it alone, several rm at once together.
_LOCK = "removing.lock"
# The tag by which MLflow's run says that the data is gone.
_TAG = "removed"


@dataclass(frozen=True)
class Candidate:
    """A run that a policy is about, or a sweep or pruning with its runs.

    Attributes:
        location: the run, or the store of the runs.
        ended: its end in seconds since the epoch, or its creation if the end is unknown.
        bytes: what would be freed; 0 if unknown, as on an object store.
        kept: why it stays; "": it is to be removed.
        state: how it ended; "" if that cannot be read.
        kind: the record of a sweep or pruning; None: it is a run.
        unread: it stays because it could not be read, or MLflow could not be asked.
    """

    location: Location
    ended: float
    bytes: int
    kept: str = ""
    state: str = ""
    kind: type[ParentRecord] | None = None
    unread: bool = False

    @property
    def name(self) -> str:
        """Its name, and what it is unless it is a run."""
        name = self.location.name
        return name if self.kind is None else f"{name} ({self.kind.WORD})"

    @property
    def when(self) -> str:
        """The time of its end as text; "unknown" if its record cannot be read."""
        if not self.ended:
            return "unknown"
        return time.strftime("%Y-%m-%d %H:%M", time.localtime(self.ended))


@dataclass(frozen=True)
class Cleaned:
    """What of a store a policy has removed, or would remove.

    Attributes:
        candidates: the runs that it is about, the oldest first.
        completed: those whose removal had been interrupted, and is complete.
        failed: why one could not be read or removed, or its interrupted removal not be completed.
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
        policy: which.

    Raises:
        ConfigError: see `candidates`.
        StillRunning: another process removes runs from it.
        StoreError: the store refused.
    """
    if not delete:
        return _cleaned(store, policy, [], {}, delete=False)
    with process_lock(private_state(store) / _LOCK, "removal"):
        failed: dict[Location, str] = {}
        return _cleaned(store, policy, complete(store, failed), failed, delete=True)


def _cleaned(
    store: Location,
    policy: Policy,
    completed: list[Location],
    failed: dict[Location, str],
    *,
    delete: bool,
) -> Cleaned:
    spared = Counter[str]()
    found = candidates(store, policy, spared)
    for one in found:
        if one.unread:
            failed[one.location] = f"stays: {one.kept}"
        elif delete and not one.kept:
            try:
                remove(one, policy.what)
                # It was about to be removed before.
                failed.pop(one.location, None)
            except VinedresserError as error:
                failed[one.location] = str(error)
    chosen = [one for one in found if not one.kept and one.location not in failed]
    of = "" if policy.what == "runs" else f" of their {policy.what}"
    freed = sum(one.bytes for one in chosen) / 1e6
    words = Counter("run" if one.kind is None else one.kind.WORD for one in chosen)
    said = ", ".join(count(number, word) for word, number in words.items()) or "0 runs"
    text = f"{said}{of}, {freed:,.1f} MB"
    return Cleaned(found, completed, failed, spared, text)


def candidates(
    store: Location, policy: Policy, spared: Counter[str] | None = None
) -> list[Candidate]:
    """Return the runs of a store that a policy is about, the oldest first.

    If runs are to be removed, each sweep and pruning in the store is one, with all of its runs.
    Those that are to stay say why: they are pinned, not over, somebody's who may still settle them,
    unknown to MLflow, registered as a model, or needed by another run or sweep (`Dependents`). One
    that cannot be read stays, too, whatever the policy is about.

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
    looked_at = [_looked_at(run, policy.what) for run in runs_in(store)]
    if policy.what == "runs":
        looked_at += [_looked_at_parent(one) for one in parents_in(store)]
    found = sorted(looked_at, key=lambda run: run.ended)
    dependents = Dependents.of(store) if policy.what == "runs" else None
    left = sum(one.bytes for one in found)
    chosen = []
    newest = {one.location for one in found[max(0, len(found) - policy.keep) :]}
    for one in found:
        kept = one.kept
        reason = f"among the newest {policy.keep} (keep)" if one.location in newest else ""
        reason = reason or _outside(one, policy, left)
        # Of one whose record cannot be read, it is not known whether the policy is about it.
        if reason and (one.ended or not one.unread):
            if spared is not None:
                spared[reason] += 1
            continue
        if dependents is not None and not kept:
            kept = dependents.reason(one.location)
        left -= 0 if kept else one.bytes
        chosen.append(replace(one, kept=kept))
    return chosen


def named(location: Location) -> Candidate:
    """Return what the user names as one to be removed, perhaps with the reason why it stays.

    Raises:
        ConfigError: it is a run that belongs to a sweep or pruning.
        NotARun: it is neither a run nor a sweep or pruning.
        StoreError: the store refused.
    """
    if isinstance(location, Path) and location.name in ("", ".."):
        # The store of the working directory is not the working directory.
        location = location.resolve()
    if kind_of(location) is not None:
        found = _looked_at_parent(location)
    else:
        run_record(open_storage(location))
        _check_store(location.parent)
        found = _looked_at(location, "runs")
    if found.kept:
        return found
    return replace(found, kept=Dependents.of(location.parent).reason(location))


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


def remove_named(location: Location) -> Candidate:
    """Remove what the user names, and return it.

    Raises:
        ConfigError: it is to stay.
        NotARun: it is neither a run nor a sweep or pruning.
        StillRunning: another process runs it, or removes runs of the store by a policy.
        TrackingError: MLflow cannot be told; nothing was removed.
        StoreError: the store refused.
    """
    found = named(location)
    with process_lock(private_state(found.location.parent) / _LOCK, "removal", shared=True):
        remove(found, "runs")
    return found


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
    if candidate.kind is not None:
        _remove_parent(candidate, candidate.kind)
        return
    storage = open_storage(location)
    kept = candidate.kept or reason_to_keep(location, storage, run_status(storage), what)
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
    forget = _note(location, _Removal(location.name, run.id))
    _finish(location, storage, run.id)
    forget()


def _remove_parent(candidate: Candidate, kind: type[ParentRecord]) -> None:
    """Remove a sweep or pruning with all of its runs; see `remove`.

    Raises:
        StillRunning: a process runs it.
    """
    location = candidate.location
    state = local_state(location)
    if candidate.kept:
        raise ConfigError(f"{location}: stays: {candidate.kept}")
    # Nobody resumes it meanwhile.
    with process_lock(state / kind.LOCK, kind.WORD):
        record = read_record(LocalStorage(state), kind)
        if record is None:
            return
        if kept := reason_to_keep_parent(location, kind, record, ours=True):
            raise ConfigError(f"{location}: stays: {kept}")
        forget = _note(location, _Removal(location.name, record.id, kind.WORD))
        try:
            left = _take_away(location, record)
        except VinedresserError:
            if kind_of(location) is not None:
                # It is whole, and the user is told.
                forget()
            raise
    _remove_folder(left)
    forget()


def _note(location: Location, removal: _Removal) -> Callable[[], None]:
    """Note that a run, sweep or pruning is being removed; return what removes the note."""
    notes = LocalStorage(private_state(location.parent))
    key = f"{_Removal.KEY}/{removal.id}.json"
    write_record(notes, removal, key=key)
    return partial(notes.delete, key)


def complete(store: Location, failed: dict[Location, str]) -> list[Location]:
    """Complete the removals that were interrupted, and return them.

    A run that is still whole and that has to stay by now, such as a pinned one, stays.

    Args:
        failed: receives why one cannot be completed yet; the next `complete` tries it again.

    Raises:
        StoreError: the notes on removals cannot be listed.
    """
    place = private_state(store)
    notes = LocalStorage(place)
    completed = []
    for key in notes.list(f"{_Removal.KEY}/"):
        location: Location = place / key
        try:
            removal = read_record(notes, _Removal, key=key)
            if removal is None:
                continue
            location = store / removal.name
            if _completes(location, removal):
                completed.append(location)
            notes.delete(key)
        except VinedresserError as error:
            failed[location] = f"its removal, which was interrupted, cannot be completed: {error}"
    return completed


def _completes(location: Location, removal: _Removal) -> bool:
    """Complete a removal; return whether anything was left of it."""
    left = _renamed(local_state(location))
    if renamed := os.path.lexists(left):
        _remove_folder(left)
    if (kind := kind_of(location)) is not None:
        record = read_record(LocalStorage(local_state(location)), kind)
        found = _looked_at_parent(location)
        if found.unread:
            raise StoreError(found.kept)
        if found.kept or record is None or record.id != removal.id:
            return renamed
        _remove_parent(found, kind)
        return True
    storage = open_storage(location)
    if not _is_left(location, storage, removal):
        return renamed
    _finish(location, storage, removal.id)
    return True


def _is_left(location: Location, storage: Storage, removal: _Removal) -> bool:
    """Return whether a removal has left something that is still to be removed."""
    if isinstance(location, Path) and (location.is_symlink() or not location.is_dir()):
        # What a link in its place leads to was never the run.
        return False
    run = read_record(storage, RunRecord)
    if run is None:
        if isinstance(location, Path):
            # A sweep was renamed: what is in its place, or holds runs, is something else.
            return removal.word == _Removal.word and not runs_in(location)
        return local_state(location).exists() or bool(storage.list(""))
    return run.id == removal.id and not reason_to_keep(
        location, storage, run_status(storage), "runs"
    )


def _check_store(store: Location) -> None:
    """Check that the runs of a store may be removed one by one."""
    if open_storage(store).exists(RunRecord.KEY):
        raise ConfigError(f"{store}: a run, not a store of runs; vinedresser rm removes it")
    if (found := parent_at(store)) is not None:
        kind, _ = found
        raise ConfigError(
            f"{store}: its runs belong to a {kind.WORD}, and go with the whole of it: `vinedresser "
            f"rm {store}`; of one that has ended, `vinedresser gc {store} --what checkpoints` "
            "removes checkpoints"
        )


def _looked_at(location: Location, what: What) -> Candidate:
    """Return what is known of a run; one that cannot be read stays."""
    storage = open_storage(location)
    found = Candidate(location, 0.0, _size(location, what))
    try:
        status = run_status(storage)
        run = read_record(storage, RunRecord)
        if run is not None:
            found = replace(found, ended=status.ended or run.created, state=status.state)
        return replace(found, kept=reason_to_keep(location, storage, status, what))
    except VinedresserError as error:
        return _kept_for(found, error)


def _looked_at_parent(location: Location) -> Candidate:
    """Return what is known of a sweep or pruning; one that cannot be read stays."""
    kind = kind_of(location)
    assert kind is not None, "its record was there"
    found = Candidate(location, 0.0, _size(location, "runs"), kind=kind)
    try:
        record = read_record(LocalStorage(local_state(location)), kind)
        if record is None:
            return found
        state = parent_state(location, kind)
        # As the training of a run that ends itself with an error.
        state = "crashed" if state == "failed" else state
        found = replace(found, ended=record.end.get("time", record.created), state=state)
        return replace(found, kept=reason_to_keep_parent(location, kind, record))
    except VinedresserError as error:
        return _kept_for(found, error)


def _kept_for(found: Candidate, error: VinedresserError) -> Candidate:
    """Return a candidate that stays because of an error."""
    # Whose tracking URI it is has been found out: not this user's.
    return replace(found, kept=str(error), unread=not isinstance(error, UntrustedTracking))


def _finish(location: Location, storage: Storage, run_id: str) -> None:
    """Remove a run whose removal has been recorded."""
    _tell_mlflow(location, RunRecord, run_id, read_tracking(location))
    storage.delete(RunRecord.KEY)
    # By the last one, a removal that is completed finds MLflow's run.
    for key in sorted(storage.list(""), key=lambda key: key == TrackingRecord.KEY):
        storage.delete(key)
    state = local_state(location)
    if isinstance(location, Path) or state.exists():
        # Folders, and what readers ignore; of a sweep on an object store, its journal.
        _remove_folder(state)


def _take_away(location: Location, record: ParentRecord) -> Path:
    """Take a sweep or pruning with all of its runs out of its store.

    Returns:
        The folder with what is left of it, under another name.

    Raises:
        StillRunning: a process has joined it meanwhile.
    """
    for run in runs_in(location):
        made = read_record(open_storage(run), RunRecord)
        _tell_mlflow(run, RunRecord, made.id if made is not None else "", read_tracking(run))
    if record.tracking_uri:
        uri = require_known(location, record.tracking_uri)
        tracking = TrackingRecord(uri, record.experiment_id, record.run_id)
        _tell_mlflow(location, type(record), record.id, tracking)
    state = local_state(location)
    if not isinstance(location, Path):
        LocalStorage(state).delete(record.KEY)
        storage = open_storage(location)
        # The record of a copy first: other machines would take the rest for a whole one.
        ends = (record.KEY, f"/{RunRecord.KEY}")
        keys = storage.list("")
        for key in sorted(keys, key=lambda key: [not key.endswith(one) for one in ends]):
            storage.delete(key)
    left = _renamed(state)
    if os.path.lexists(left):
        _remove_folder(left)
    try:
        os.rename(state, left)
    except OSError as error:
        # Such as one of another user, in a folder in which each removes only their own.
        raise StoreError(f"{location}: not removed: {error.strerror}") from error
    if is_joined(left):
        os.rename(left, state)
        raise StillRunning(f"{location}: stays: a process has joined this {record.WORD}")
    return left


def _renamed(state: Path) -> Path:
    """Return the place of the folder of a sweep or pruning while it is removed."""
    return state.with_name(f"{TEMPORARY}removed-{state.name}")


def _tell_mlflow(
    location: Location,
    kind: type[RunRecord | ParentRecord],
    own_id: str,
    tracking: TrackingRecord | None,
) -> None:
    """Tag the run of MLflow whose data is about to go, unless that is the run of an original."""
    if tracking is None:
        return
    # What waits is asked again by the next `clean`, and there may be many.
    if original_of(location, kind, own_id, tracking, timeout=None) is not None:
        return
    with connected(tracking.uri) as client:
        client.set_tag(tracking.run_id, _TAG, datetime.now(UTC).isoformat(timespec="seconds"))


def _remove_folder(folder: Path) -> None:
    try:
        shutil.rmtree(folder)
    except OSError as error:
        # Such as a file that another process has removed, or written, meanwhile.
        raise StoreError(f"{folder}: not removed: {error.strerror or error}") from error


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
