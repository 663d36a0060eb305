"""Making a place on a store ours, before anything is trained."""

from __future__ import annotations

import time
from dataclasses import asdict
from pathlib import Path

from vinedresser.errors import AlreadyARun, KeyTaken, NotARun, SecondWriter
from vinedresser.processes import this_process
from vinedresser.store.records import (
    Heartbeat,
    RunRecord,
    heartbeat_key,
    read_record,
    write_record,
)
from vinedresser.store.storage import LocalStorage, Storage
from vinedresser.store.storage.spool import PRIVATE

__all__ = ["claim_rank", "claim_run"]

_CLAIMED = f"{PRIVATE}/claimed"
# How long a further rank waits for rank 0 to make the run.
_PATIENCE = 60.0


def claim_run(spool: LocalStorage, store: Storage) -> None:
    """Put the run's record where no run is yet.

    Raises:
        AlreadyARun: another run is there.
        NotARun: the spool has no record of a run.
        StoreError: the store refused.
    """
    ours = read_record(spool, RunRecord)
    if ours is None:
        raise NotARun(f"{spool.location}: the spool has no {RunRecord.KEY}")
    try:
        write_record(store, ours, exclusive=True)
    except KeyTaken as error:
        theirs = read_record(store, RunRecord)
        # The spool of a relay that was killed: the claim is known by the run's id.
        if theirs is None or theirs.id != ours.id:
            raise AlreadyARun(
                f"{store.location}: holds a run already; give the new one a place of its own"
            ) from error


def claim_rank(spool: LocalStorage, store: Storage, rank: int) -> None:
    """Take a rank beyond 0 of a run that rank 0 makes, and bring the run's record here.

    Raises:
        NotARun: rank 0 did not make the run in time.
        SecondWriter: another process has the rank.
        StoreError: the store refused.
    """
    deadline = time.monotonic() + _PATIENCE
    while (record := read_record(store, RunRecord)) is None:
        if time.monotonic() > deadline:
            raise NotARun(f"{store.location}: rank 0 did not make the run within {_PATIENCE} s")
        time.sleep(0.1)
    if not spool.exists(RunRecord.KEY):
        write_record(spool, record)
    if Path(spool.location, _CLAIMED).exists():
        return
    beat = Heartbeat(rank, asdict(this_process()), last_step=-1, time=time.time())
    try:
        write_record(store, beat, key=heartbeat_key(rank), exclusive=True)
    except KeyTaken as error:
        raise SecondWriter(
            f"{store.location}: rank {rank} has a writer already; each process needs a rank of its "
            "own, and each training a run of its own"
        ) from error
    spool.put(_CLAIMED, [b""])
