"""Stores of runs: a directory of run directories, or the same on an object store."""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from vinedresser.errors import CorruptData
from vinedresser.infra.catalog.state_folder import private_folder, state_folder, store_state_folder
from vinedresser.objects import Location, open_storage
from vinedresser.objects.files import make_folders
from vinedresser.plain_logs import plain_logger
from vinedresser.processes import ProcessIdentity, is_alive, this_process
from vinedresser.store.liveness import LastSign, last_sign, read_record_or_none
from vinedresser.store.reading.store_runs import run_directories
from vinedresser.store.records import (
    ClaimRecord,
    ExitRecord,
    LaunchRecord,
    RunRecord,
    heartbeats,
    owner_of,
)
from vinedresser.store.spool import spools

__all__ = [
    "Owner",
    "ensure_store",
    "living_owner",
    "living_writer",
    "local_state",
    "may_be_alive",
    "owned_here",
    "owner_if_readable",
    "owner_is_gone",
    "places_in",
    "private_state",
]


_log = plain_logger(__name__)

# Seconds without a sign of life from a run until its process of another machine counts as gone. It
# settles the run within minutes, unless its machine sleeps or does not reach the store.
_OWNER_LOST_AFTER = 86_400.0
# The same for a run that was not started: it may wait for GPUs, and gives no sign meanwhile.
_WAITING_LOST_AFTER = 30 * _OWNER_LOST_AFTER


@dataclass(frozen=True)
class Owner:
    """The process to which a run belongs, which may be alive and will settle the run then.

    Attributes:
        sign: what was last heard of the run, or of all of its runs if this one was not started;
            None for a process of this machine.
        waits: the run was not started.
    """

    process: ProcessIdentity
    sign: LastSign | None = None
    waits: bool = False

    @property
    def said(self) -> str:
        """Who it is, as a clause."""
        if self.sign is None:
            return f"process {self.process.pid}, to which it belongs, still runs"
        return (
            f"process {self.process.pid} on {self.process.host}, to which it belongs, may still "
            f"run: last sign of life {self.sign.when}; it counts as gone "
            f"{'30 days' if self.waits else 'a day'} later"
        )


def local_state(store: Location) -> Path:
    """Return the folder on this machine for the state of a flow on a store.

    This is the store itself, unless it is on an object store.
    """
    return store if isinstance(store, Path) else store_state_folder(store)


def private_state(store: Location) -> Path:
    """Return the folder of this user's for what must not be read from a store, created if missing.

    The files in a store may come from others, who shared or copied it.

    Raises:
        StoreError: it cannot be created, or belongs to another user.
    """
    place = os.path.realpath(store) if isinstance(store, Path) else str(store)
    private_folder(state_folder())
    return private_folder(store_state_folder(place))


def ensure_store(store: Location) -> None:
    """Make sure that a store can be written to; create it and the folder of its state.

    Raises:
        ConfigError: the URL has no bucket.
        MissingDependency: a package for S3 is not installed.
        StoreError: the bucket does not exist, or there is no server or no permission.
        OSError: the folder cannot be created.
    """
    if not isinstance(store, Path):
        # Listing fails without a bucket; asking for one object does not.
        open_storage(store).list(RunRecord.KEY)
    make_folders(local_state(store))


def places_in(store: Location) -> Sequence[Location]:
    """Return the runs that a store has or is about to have; on an object store with one request.

    Raises:
        StoreError: the store refused.
    """
    if isinstance(store, Path):
        return run_directories(store)
    return [store / folder for folder in open_storage(store).folders()]


def living_owner(location: Location) -> Owner | None:
    """Return the process for which a run was made if it may be alive; it will settle the run.

    Of a hook without a launcher this is the process that trains: see `living_writer`.

    Raises:
        CorruptData: the launch record of the run cannot be read.
        StoreError: the store refused a request.
    """
    process = _owner(location)
    return may_be_alive(process, location) if process is not None else living_writer(location)


def living_writer(location: Location) -> Owner | None:
    """Return a process that may still train a run of a hook without a launcher, which has no end.

    Raises:
        StoreError: the store refused a request.
    """
    storage = open_storage(location)
    # The supervisor of an additional run's script (claim.json) ends that run, too.
    if any(storage.exists(kind.KEY) for kind in (LaunchRecord, ClaimRecord, ExitRecord)):
        return None
    writers = (beat.identity() for beat in heartbeats(storage) if not (beat.closed or beat.gone))
    found = (may_be_alive(writer, location) for writer in writers)
    return next((owner for owner in found if owner is not None), None)


def may_be_alive(process: ProcessIdentity, location: Location) -> Owner | None:
    """Return a process to which a run belongs; None if it is gone.

    Of a process of another machine only the signs of life of its runs are known. A run that was
    not started gives none; it may wait for others of the same process, or for GPUs.

    Raises:
        StoreError: the store refused a request.
    """
    alive = is_alive(process)
    if alive is not None:
        return Owner(process) if alive else None
    own = last_sign(open_storage(location))
    waits = not own.time
    signs = _signs_of_runs(process, location) if waits else [own]
    last = max(signs, key=lambda sign: sign.time)
    patience = _WAITING_LOST_AFTER if waits else _OWNER_LOST_AFTER
    return Owner(process, last, waits) if time.time() - last.time < patience else None


def _signs_of_runs(process: ProcessIdentity, location: Location) -> list[LastSign]:
    """Return the signs of life of all runs in a store that were made for a process.

    Args:
        location: one of them, whose creation is a sign, too.
    """
    faults: list[str] = []
    run = read_record_or_none(open_storage(location), RunRecord, RunRecord.KEY, faults)
    places = places_in(location.parent)
    return [
        LastSign(run.created if run is not None else 0.0, process.host),
        *(last_sign(open_storage(one)) for one in places if owner_if_readable(one) == process),
    ]


def owner_is_gone(location: Location) -> bool:
    """Return whether a run was made for a process of this machine that is gone.

    Of a run whose launch record is damaged that is not known.

    Raises:
        StoreError: the store refused a request.
    """
    owner = owner_if_readable(location)
    return owner is not None and is_alive(owner) is False


def owned_here(store: Location) -> list[Path]:
    """Return the directories of a store's runs that were made for this process.

    For runs on an object store these are the spools. A run whose launch record is damaged is left
    out: the others are to be found all the same.
    """
    here = this_process()
    directories = run_directories(store) if isinstance(store, Path) else spools(store)
    return [directory for directory in directories if owner_if_readable(directory) == here]


def owner_if_readable(location: Location) -> ProcessIdentity | None:
    """Return the owner of a run; None also if its launch record is damaged, which is logged."""
    try:
        return _owner(location)
    except CorruptData as error:
        _log.warning("%s", error)
        return None


def _owner(location: Location) -> ProcessIdentity | None:
    storage = open_storage(location)
    owner = owner_of(storage)
    launched = owner is not None or storage.exists(LaunchRecord.KEY)
    if not launched and storage.exists(ClaimRecord.KEY):
        # An additional run: its script was launched for the first run.
        first = str(location).rpartition(".")[0]
        owner = owner_of(open_storage(first))
    return ProcessIdentity(**owner) if owner is not None else None
