"""A prepared run on its way to a worker of a cluster, and the delivery back: JSON types."""

from __future__ import annotations

import os
import shutil
import sys
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from vinedresser.capture.attach.launching import attach_environment
from vinedresser.errors import AlreadyARun, KeyTaken
from vinedresser.infra.catalog.stores import local_state, owner_is_gone
from vinedresser.objects import LocalStorage, Location, StoreUrl, is_remote, open_storage
from vinedresser.processes import this_process
from vinedresser.store.records import (
    ExitRecord,
    LaunchRecord,
    RunRecord,
    WorkerRecord,
    read_record,
    write_first,
    write_record,
)
from vinedresser.store.spool import PRIVATE
from vinedresser.tasks.places.checkpoints import SavedCheckpoint, fetch_checkpoint
from vinedresser.tasks.places.remote_place import RemotePlace
from vinedresser.tasks.places.run_place import RunPlace

__all__ = ["Delivery", "Shipment", "pack", "settle_staged", "settle_unborn", "stage", "unpack"]

# Runs of an object store have a folder each in the state of the store until they are over.
_FOLDER = "staged"


@dataclass(frozen=True)
class Shipment:
    """A run that is prepared but not started.

    Attributes:
        location: URL of the run, or the path of its directory on a shared file system.
        files: text of each file in its directory by key; empty if the directory is shared.
        python: interpreter of the flow, which the worker replaces with its own.
        groups: rule groups that judge it.
        store: store with the flow's heartbeat.
    """

    name: str
    location: str
    files: dict[str, str]
    python: str
    groups: list[str]
    store: str


@dataclass(frozen=True)
class Delivery:
    """The result of a run on a worker.

    Attributes:
        arrived: URLs or paths of the runs of its script that are complete in the store.
        missing: those that are not yet complete.
        failures: messages of the stages that failed.
    """

    arrived: list[str] = field(default_factory=list)
    missing: list[str] = field(default_factory=list)
    failures: list[str] = field(default_factory=list)


def pack(directory: Path, location: Location, groups: Sequence[str]) -> dict[str, Any]:
    """Return the shipment of a run.

    Args:
        directory: directory in which it is prepared.
        location: location at which readers find it.
        groups: rule groups that judge it.

    Raises:
        StoreError: the directory cannot be read.
    """
    storage = LocalStorage(directory)
    files = {key: storage.get(key).decode() for key in storage.list("")}
    place = os.fspath(location)
    return asdict(
        Shipment(
            name=directory.name,
            location=place,
            files=files if is_remote(place) else {},
            python=sys.executable,
            groups=list(groups),
            store=os.fspath(location.parent),
        )
    )


def unpack(shipment: Shipment, say: Any) -> RunPlace:
    """Return the place of a run on this machine, ready to be launched.

    Args:
        say: reports a sentence to the user.

    Raises:
        AlreadyARun: another worker has or had it.
        StoreError: the store refused a request.
        OSError: the spool cannot be written.
    """
    ours = WorkerRecord(asdict(this_process()))
    try:
        write_record(open_storage(shipment.location), ours, exclusive=True)
    except KeyTaken as error:
        # A cluster reassigns the task of a dead worker; the flow begins the run anew.
        raise AlreadyARun(f"{shipment.location}: another worker has or had it") from error
    if not is_remote(shipment.location):
        place = RunPlace(Path(shipment.location))
    else:
        place = RemotePlace.make(StoreUrl(shipment.location), say)
        for key, text in shipment.files.items():
            LocalStorage(place.directory).put(key, [text.encode()])
        write_record(LocalStorage(place.directory), ours)
    _adapt(LocalStorage(place.directory), shipment)
    place.begin()
    return place


def _adapt(storage: LocalStorage, shipment: Shipment) -> None:
    """Adapt the launch of a run to this machine."""
    launch = read_record(storage, LaunchRecord)
    assert launch is not None, "it was prepared"
    program, *arguments = launch.argv
    program = sys.executable if program == shipment.python else program
    argv = [program, *(_here(argument, shipment, storage) for argument in arguments)]
    environment = launch.environment
    if launch.attach:
        environment = environment | attach_environment(os.environ | environment)
    write_record(storage, replace(launch, argv=argv, environment=environment))


def _here(argument: str, shipment: Shipment, storage: LocalStorage) -> str:
    """Return an argument, or the local copy of the checkpoint on an object store that it names."""
    saved = SavedCheckpoint.at(argument)
    if saved is None or not is_remote(shipment.location):
        return argument
    there = open_storage(f"{shipment.store}/{saved.run}")
    return str(fetch_checkpoint(there, saved, Path(storage.location, PRIVATE, "fetched")))


def stage(store: StoreUrl, name: str) -> Path:
    """Return an empty folder in which to prepare a run; its name in the store is reserved."""
    folder = local_state(store) / _FOLDER / name
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    return folder


def settle_unborn(staged: Path, location: str, reason: str) -> ExitRecord | None:
    """End a prepared run that no worker has begun, in its store.

    Args:
        staged: folder in which it was prepared.
        location: location at which readers find it.
        reason: why it did not begin.

    Returns:
        How it ended; None if it has begun.

    Raises:
        StoreError: a store refused a request.
    """
    prepared, storage = LocalStorage(staged), open_storage(location)
    if storage.exists(RunRecord.KEY):
        return None
    # A worker that begins later finds it taken.
    write_first(storage, WorkerRecord(asdict(this_process())))
    for key in prepared.list(""):
        storage.put(key, [prepared.get(key)])
    return write_first(storage, ExitRecord("killed", reason, time.time()))


def settle_staged(store: StoreUrl) -> None:
    """Settle the runs that a killed flow prepared on this machine and no worker has begun.

    Raises:
        StoreError: the store refused a request.
    """
    root = local_state(store) / _FOLDER
    for staged in sorted(root.iterdir()) if root.is_dir() else ():
        if owner_is_gone(staged):
            settle_unborn(staged, store / staged.name, "prepared, but never started")
            shutil.rmtree(staged)
