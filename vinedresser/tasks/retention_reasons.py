"""Why a run, or a sweep or pruning with its runs, has to stay; a pin says so."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from vinedresser.errors import CorruptData, StoreError
from vinedresser.infra.catalog.known_tracking import read_tracking, require_known
from vinedresser.infra.catalog.stores import Owner, living_owner, local_state, owner_if_readable
from vinedresser.infra.services.tracking.client import connected
from vinedresser.objects import LocalStorage, Location, Storage, open_storage
from vinedresser.processes import ProcessIdentity, user_name
from vinedresser.store.liveness import read_record_or_none
from vinedresser.store.reading.store_runs import run_record, runs_in
from vinedresser.store.records import (
    ExitRecord,
    ParentRecord,
    PinRecord,
    RunRecord,
    TrackingRecord,
    read_record,
    write_record,
)
from vinedresser.store.spool import spools
from vinedresser.store.status import Status, run_status
from vinedresser.sweeps.spec import SweepRecord
from vinedresser.tasks.config.retention_file import What
from vinedresser.tasks.parents.kinds import (
    is_held,
    is_joined,
    kind_of,
    parent_state,
    parents_in,
)

__all__ = ["Dependents", "pin", "reason_to_keep", "reason_to_keep_parent", "unpin"]

_NOT_UPLOADED = "its data is not uploaded yet"
# The end of the name of a run that replaces another one, or begins it again.
_RETRY = re.compile(r"-(?:remedy|restart)-\d+$")


@dataclass(frozen=True)
class Dependents:
    """Which runs and sweeps of a store need others of it.

    Attributes:
        origins: by name of a run, the run that began from it.
        named: by id of a run or sweep, who compares with it or learns from it.
        owners: processes of other machines that may be alive by the signs of one of their runs.
    """

    origins: dict[str, str]
    named: dict[str, str]
    owners: dict[ProcessIdentity, Owner]

    @classmethod
    def of(cls, store: Location) -> Self:
        """Read those of a store.

        The trials of a sweep are compared with the same runs, unless it was resumed with others: of
        those that can be read, the first and the last one are.

        Raises:
            StoreError: the store refused.
        """
        found = cls({}, {}, {})
        for run in runs_in(store):
            found._read(run, run.name)
            # What cannot be read of it is said where it is looked at.
            with suppress(CorruptData, StoreError):
                if (owner := living_owner(run)) is not None:
                    found.owners[owner.process] = owner
        for parent in parents_in(store):
            trials = runs_in(parent)
            for order in (trials, trials[::-1]):
                for trial in order:
                    if found._read(trial, parent.name):
                        break
            record = _sweep_record(parent)
            if record is not None and record.warm_start:
                found.named[record.warm_start] = f"{parent.name} starts from it (warm_start)"
        return found

    def _read(self, run: Location, name: str) -> bool:
        """Read what a run needs; return whether it can be read."""
        try:
            record = read_record(open_storage(run), RunRecord)
        except (CorruptData, StoreError):
            # By its name it may be a retry.
            if (retry := _RETRY.search(name)) is not None:
                reason = f"{name}, which cannot be read, may have begun from it"
                self.origins[name[: retry.start()]] = reason
            return False
        if record is None:
            return False
        for stopped in (record.remedy.get("stopped"), record.restart.get("failed")):
            if stopped:
                self.origins[str(stopped)] = f"{name} began from it"
        for good in record.named_references:
            self.named[good] = f"{name} is compared with it (reference)"
        return True

    def reason(self, location: Location) -> str:
        """Return why a run, or a sweep or pruning with its runs, is needed; "" if it is not.

        Raises:
            StoreError: the store refused.
        """
        if kind_of(location) is None:
            if location.name in self.origins:
                return self.origins[location.name]
            owner = owner_if_readable(location)
            if owner is not None and owner in self.owners:
                return self.owners[owner].said
        if not self.named:
            return ""
        return next((self.named[one] for one in _ids(location) if one in self.named), "")


def _ids(location: Location) -> Iterator[str]:
    """Yield the ids of a run, or of a sweep with its runs."""
    if (sweep := _sweep_record(location)) is not None:
        yield sweep.id
    for run in runs_in(location):
        if record := read_record_or_none(open_storage(run), RunRecord, RunRecord.KEY, []):
            yield record.id


def _sweep_record(location: Location) -> SweepRecord | None:
    """Return the record of a sweep; None also if it is damaged: such a sweep cannot be resumed."""
    state = LocalStorage(local_state(location))
    return read_record_or_none(state, SweepRecord, SweepRecord.KEY, [])


def pin(location: Location, why: str) -> None:
    """Keep a run, or a sweep or pruning with its runs, for good.

    Args:
        why: why, or "".

    Raises:
        NotARun: it is neither.
        StoreError: the store refused.
    """
    storage = _pins(location)
    if kind_of(location) is None:
        run_record(storage)
    write_record(storage, PinRecord(why, user_name(), time.time()))


def unpin(location: Location) -> None:
    """Let it be removed again; do nothing if it is not pinned.

    Raises:
        StoreError: the store refused.
    """
    _pins(location).delete(PinRecord.KEY)


def _pins(location: Location) -> Storage:
    """Return where a pin is: in the run, or in the state of the sweep or pruning."""
    if kind_of(location) is None:
        return open_storage(location)
    return LocalStorage(local_state(location))


def reason_to_keep_parent(
    location: Location, kind: type[ParentRecord], record: ParentRecord, *, ours: bool = False
) -> str:
    """Return why a sweep or pruning must stay with its runs; "" if it need not.

    Args:
        ours: this process has the lock of its folder.

    Raises:
        CorruptData: a record that says so is damaged.
        StoreError: the store refused.
        TrackingError: MLflow cannot be asked whether a model of it is registered.
    """
    if reason := _in_use(location, kind, ours=ours):
        return reason
    if record.tracking_uri:
        tracking = TrackingRecord(
            require_known(location, record.tracking_uri),
            record.experiment_id,
            record.run_id,
            settled=bool(record.end) and record.settled,
        )
        if reason := _needed_by_mlflow(tracking, "runs"):
            return reason
    return _reason_of_runs(location, record)


def _in_use(location: Location, kind: type[ParentRecord], *, ours: bool) -> str:
    """Return who needs the folder of a sweep or pruning; "" if nobody does."""
    state = local_state(location)
    if pinned := _pinned(LocalStorage(state)):
        return pinned
    if isinstance(location, Path) and location.is_symlink():
        return "it is a link"
    if is_joined(state) if ours else is_held(state, kind):
        return "a process runs it"
    if not isinstance(location, Path) and spools(str(location)):
        return _NOT_UPLOADED
    return ""


def _reason_of_runs(location: Location, record: ParentRecord) -> str:
    """Return which run in the folder of a sweep or pruning must stay, and why; "" if none must."""
    runs = runs_in(location)
    for run in runs:
        storage = open_storage(run)
        if reason := _reason_of_run(run, storage, run_status(storage), "runs"):
            return f"{run.name}: {reason}"
        if not _is_made_by(record, storage):
            return f"{run.name}: a run that is none of this {record.WORD}'s"
    names = {run.name for run in runs}
    for name in open_storage(location).folders():
        inner = location / name
        if name not in names and (kind_of(inner) or runs_in(inner) or parents_in(inner)):
            return f"{name}: holds runs that are none of this {record.WORD}'s"
    return ""


def _is_made_by(record: ParentRecord, storage: Storage) -> bool:
    """Return whether a sweep or pruning has made a run; others may lie in its folder."""
    tracking = read_record(storage, TrackingRecord)
    if tracking is not None:
        # A copy that was not resumed has made none.
        return bool(record.run_id) and tracking.parent == record.run_id
    # Its flow was killed before it told MLflow of the run.
    run = read_record(storage, RunRecord)
    return run is None or bool(run.flow)


def _pinned(storage: Storage) -> str:
    """Return who pinned what a storage holds, and why; "" if nobody has."""
    record = read_record(storage, PinRecord)
    if record is None:
        return ""
    by = f" by {record.user}" if record.user else ""
    return f"pinned{by}" + (f": {record.why}" if record.why else "")


def reason_to_keep(location: Location, storage: Storage, status: Status, what: What) -> str:
    """Return why a run, or its snapshots or checkpoints, must stay; "" if they need not.

    Raises:
        CorruptData: a record that says so is damaged.
        StoreError: the store refused.
        TrackingError: MLflow cannot be asked whether a model of it is registered.
    """
    return _reason_of_whole(location.parent) or _reason_of_run(location, storage, status, what)


def _reason_of_whole(store: Location) -> str:
    """Return why the sweep or pruning that made the runs of a store needs them; "" otherwise."""
    if (kind := kind_of(store)) is None:
        return ""
    if pinned := _pinned(LocalStorage(local_state(store))):
        return f"its {kind.WORD} is {pinned}"
    if parent_state(store, kind) in ("running", "dead"):
        return f"its {kind.WORD} has not ended, or nothing has recorded its end"
    return ""


def _reason_of_run(location: Location, storage: Storage, status: Status, what: What) -> str:
    if pinned := _pinned(storage):
        return pinned
    if isinstance(location, Path) and location.is_symlink():
        return "it is a link"
    if open_end := _open_end(location, storage, status):
        return open_end
    if not isinstance(location, Path) and spools(str(location)):
        return _NOT_UPLOADED
    tracking = read_tracking(location)
    return _needed_by_mlflow(tracking, what) if tracking is not None else ""


def _open_end(location: Location, storage: Storage, status: Status) -> str:
    """Return who runs a run or may still settle it, or that nobody has; "" if it is over."""
    if not status.over:
        return "it has not ended"
    if (owner := living_owner(location)) is not None:
        return owner.said
    if not storage.exists(ExitRecord.KEY):
        return f"{status.reason}: vinedresser reconcile"
    return ""


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
