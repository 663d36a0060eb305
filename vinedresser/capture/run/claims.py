"""Which run a training goes to, of which its script says nothing."""

from __future__ import annotations

import json
import os
import time
import uuid
from collections.abc import Iterator
from dataclasses import asdict, replace

from vinedresser.capture.run.environment import Environment
from vinedresser.capture.run.opening import OpenedRun, launched_run
from vinedresser.errors import SecondWriter
from vinedresser.processes import identify, this_process
from vinedresser.store.records import (
    ClaimRecord,
    RunRecord,
    heartbeat_key,
    write_first,
)
from vinedresser.store.storage import Storage, open_storage

__all__ = ["MOST_RUNS", "claim", "additional_location"]

# A script that trains again and again in a loop shall not fill the store with its runs.
MOST_RUNS = 100

# What tells the ranks of one job from those of another, as torchrun and mpirun say it.
_JOB_VARIABLES = (
    "TORCHELASTIC_RUN_ID",
    "TORCHELASTIC_RESTART_COUNT",
    "PMIX_NAMESPACE",
    "MASTER_ADDR",
    "MASTER_PORT",
)


def additional_location(location: str, number: int) -> str:
    """Return where the training of a number goes whose script was launched for a run.

    Args:
        location: of the run.
        number: 1 for the first training, which is the run's own.
    """
    return location if number == 1 else f"{location}.{number}"


def claim(environment: Environment) -> OpenedRun:
    """Open the run for the next training of this process.

    The first training of all processes of a launched script gets the run that it was launched for,
    every further one a run of its own beside it: ``<run>.2``, ``<run>.3`` and so on. Ranks of one
    job share a run.

    Raises:
        SecondWriter: there have been `MOST_RUNS` trainings.
        NotARun: there is no run for which this process was launched.
        CorruptData: a record cannot be read.
        StoreError: the storage refused.
    """
    first = launched_run(environment.run)
    processes = _processes(environment)
    for number, storage in _candidates(environment.run):
        if number > 1 and storage.exists(RunRecord.KEY) and not storage.exists(ClaimRecord.KEY):
            # Somebody else's, of that very name.
            continue
        holder = write_first(storage, ClaimRecord(processes))
        if holder.processes != processes or storage.exists(heartbeat_key(environment.rank)):
            continue
        if number == 1:
            return first
        return OpenedRun(storage, write_first(storage, _additional(first, number)), launched=False)
    raise SecondWriter(
        f"{environment.run}: its script has begun more than {MOST_RUNS} trainings; the further "
        "ones are not captured"
    )


def _candidates(location: str) -> Iterator[tuple[int, Storage]]:
    for number in range(1, MOST_RUNS + 1):
        yield number, open_storage(additional_location(location, number))


def _additional(first: OpenedRun, number: int) -> RunRecord:
    """Return the record of a further training's run."""
    return replace(
        first.record,
        id=uuid.uuid4().hex,
        name=additional_location(first.record.name, number),
        created=time.time(),
        framework="",
        modules={},
    )


def _processes(environment: Environment) -> str:
    """Return what the processes have in common that write to one run."""
    if environment.world_size == 1:
        return json.dumps(asdict(this_process()))
    said = {name: os.environ[name] for name in _JOB_VARIABLES if os.environ.get(name)}
    if said:
        return json.dumps(said)
    parent = identify(os.getppid())
    return json.dumps(asdict(parent) if parent else os.getppid())
