"""Choosing the run of a training whose script has no hook."""

from __future__ import annotations

import json
import os
import time
import uuid
from collections.abc import Iterator
from dataclasses import asdict, replace

from vinedresser.capture.run.attachment import ATTACHMENT
from vinedresser.capture.run.environment import Environment
from vinedresser.capture.run.opening import OpenedRun, launched_run
from vinedresser.errors import SecondWriter
from vinedresser.objects import Storage, open_storage
from vinedresser.processes import identify, this_process
from vinedresser.store.records import ClaimRecord, RunRecord, heartbeat_key, write_first

__all__ = ["MOST_RUNS", "additional_location", "claim", "yield_run"]

# A script that trains in a loop must not fill the store with runs.
MOST_RUNS = 100

# The variables by which torchrun and mpirun identify a job.
_JOB_VARIABLES = (
    "TORCHELASTIC_RUN_ID",
    "TORCHELASTIC_RESTART_COUNT",
    "PMIX_NAMESPACE",
    "MASTER_ADDR",
    "MASTER_PORT",
)


def additional_location(location: str, number: int) -> str:
    """Return the location of a launched script's training.

    Args:
        location: location of the launched run.
        number: number of the training; 1 uses the launched run.
    """
    return location if number == 1 else f"{location}.{number}"


def claim(environment: Environment) -> OpenedRun:
    """Open the run for the next training of this process.

    The first training among all processes of a launched script gets the launched run; every other
    one gets an additional run: ``<run>.2``, ``<run>.3`` and so on. Ranks of one job share a run.

    Raises:
        SecondWriter: there were already `MOST_RUNS` trainings.
        NotARun: the launched run is missing.
        CorruptData: a record is invalid.
        StoreError: the storage failed.
    """
    first = launched_run(environment.run)
    processes = _processes(environment)
    for number, storage in _candidates(environment.run):
        if number > 1 and storage.exists(RunRecord.KEY) and not storage.exists(ClaimRecord.KEY):
            # A run of another launch with that name.
            continue
        holder = write_first(storage, ClaimRecord(processes))
        if holder.processes != processes or storage.exists(heartbeat_key(environment.rank)):
            continue
        if number == 1:
            return first
        return OpenedRun(storage, write_first(storage, _additional(first, number)), launched=False)
    raise SecondWriter(
        f"{environment.run}: the script started more than {MOST_RUNS} trainings; the "
        "others are not captured"
    )


def yield_run(environment: Environment) -> OpenedRun:
    """Open the run for a hook that a launched script creates itself.

    Attached hooks of this process are closed. If another hook, in this or another process, writes
    or has written to the launched run, open an additional run.

    Raises:
        NotARun: the launched run is missing.
        CorruptData: a record is invalid.
        SecondWriter: there were too many trainings.
        StoreError: the storage failed.
    """
    ATTACHMENT.retire()
    storage = open_storage(environment.run)
    if storage.exists(ClaimRecord.KEY) or storage.exists(heartbeat_key(environment.rank)):
        return claim(environment)
    return launched_run(environment.run)


def _candidates(location: str) -> Iterator[tuple[int, Storage]]:
    for number in range(1, MOST_RUNS + 1):
        yield number, open_storage(additional_location(location, number))


def _additional(first: OpenedRun, number: int) -> RunRecord:
    return replace(
        first.record,
        id=uuid.uuid4().hex,
        name=additional_location(first.record.name, number),
        created=time.time(),
        framework="",
        modules={},
    )


def _processes(environment: Environment) -> str:
    """Return a text that is equal in all processes that write to the same run."""
    if environment.world_size == 1:
        return json.dumps(asdict(this_process()))
    said = {name: os.environ[name] for name in _JOB_VARIABLES if os.environ.get(name)}
    if said:
        return json.dumps(said)
    parent = identify(os.getppid())
    return json.dumps({"parent": asdict(parent) if parent else os.getppid()})
