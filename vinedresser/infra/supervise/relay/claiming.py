"""Claiming a location in the store before the training starts."""

from __future__ import annotations

import time
from dataclasses import asdict

from vinedresser.errors import AlreadyARun, KeyTaken, NotARun, SecondWriter
from vinedresser.objects import LocalStorage, Storage
from vinedresser.processes import this_process
from vinedresser.store.records import Heartbeat, RunRecord, heartbeat_key, read_record, write_record
from vinedresser.store.spool import PRIVATE

__all__ = ["claim_rank", "claim_run"]

# The heartbeat by which a rank is claimed, and a mark that the store has accepted it.
_CLAIM, _CLAIMED = f"{PRIVATE}/claim.json", f"{PRIVATE}/claimed"
# Seconds that other ranks wait for rank 0 to create the run.
_PATIENCE = 60.0


def claim_run(spool: LocalStorage, store: Storage) -> None:
    """Write the run's record to a location without a run.

    Raises:
        AlreadyARun: the location holds another run.
        NotARun: the spool has no run record.
        StoreError: the store refused.
    """
    ours = read_record(spool, RunRecord)
    if ours is None:
        raise NotARun(f"{spool.location}: the spool has no {RunRecord.KEY}")
    try:
        write_record(store, ours, exclusive=True)
    except KeyTaken as error:
        theirs = read_record(store, RunRecord)
        # A relay that was killed may have claimed it before: then the id is the same.
        if theirs is None or theirs.id != ours.id:
            raise AlreadyARun(
                f"{store.location}: already holds a run; choose another location"
            ) from error


def claim_rank(spool: LocalStorage, store: Storage, rank: int) -> None:
    """Claim a rank other than 0 of a run that rank 0 creates, and fetch the run's record.

    Raises:
        NotARun: rank 0 did not create the run in time.
        SecondWriter: another process has claimed the rank.
        StoreError: the store refused.
    """
    deadline = time.monotonic() + _PATIENCE
    while (record := read_record(store, RunRecord)) is None:
        if time.monotonic() > deadline:
            raise NotARun(f"{store.location}: rank 0 did not create the run within {_PATIENCE} s")
        time.sleep(0.1)
    if not spool.exists(RunRecord.KEY):
        write_record(spool, record)
    if spool.exists(_CLAIMED):
        return
    # Noted first: a relay that is killed in between leaves a claim that the next one recognises.
    ours = read_record(spool, Heartbeat, key=_CLAIM)
    if ours is None:
        ours = Heartbeat(rank, asdict(this_process()), last_step=-1, time=time.time())
        write_record(spool, ours, key=_CLAIM)
    try:
        write_record(store, ours, key=heartbeat_key(rank), exclusive=True)
    except KeyTaken as error:
        if read_record(store, Heartbeat, key=heartbeat_key(rank)) != ours:
            raise SecondWriter(
                f"{store.location}: rank {rank} already has a writer; each process needs its own "
                "rank, and each training its own run"
            ) from error
    spool.put(_CLAIMED, [b""])
