"""How a run stands: is it running, and if not, how did it end."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Literal

from vinedresser.errors import NotARun
from vinedresser.store.records import (
    ExitRecord,
    LaunchRecord,
    RunRecord,
    SupervisorRecord,
    heartbeat_key,
    read_record,
)
from vinedresser.store.signs_of_life import LOST, Sign, lives, read_or_none, signs_of_life
from vinedresser.store.storage import Storage

__all__ = ["RunState", "Status", "rank_is_over", "run_status"]

RunState = Literal["running", "finished", "stopped", "crashed", "killed", "dead"]

# Seconds that a run may take from its making to the first sign of life.
_STARTING = 60.0


@dataclass(frozen=True)
class Status:
    """How a run stands.

    Attributes:
        state: "running"; or how it ended: "finished" (exit code 0), "stopped" (asked to by a rule,
            a person or its owner), "crashed" (it failed by itself), "killed" (by a signal from
            outside); or "dead": nobody runs it any more, and nobody wrote down how it ended.
        reason: one sentence; while it runs, which ranks are gone, and which
            have been silent for long; "" where nothing is to be said.
        by: of a stopped run, "rule", "sweep", "person" or "owner"; else "".
        rule: the rule that asked for the stop; else "".
        step: the last optimizer step that ended, None where it never said.
        code: its exit code, None when a signal ended it or nobody knows.
        signal: the name of the signal that ended it; else "".
        ended: when it ended, seconds since the epoch; None where it runs or nobody knows.
    """

    state: RunState
    reason: str = ""
    by: str = ""
    rule: str = ""
    step: int | None = None
    code: int | None = None
    signal: str = ""
    ended: float | None = None

    @property
    def over(self) -> bool:
        """Whether nothing more will come."""
        return self.state != "running"


def run_status(storage: Storage) -> Status:
    """Find out how the run in a storage stands.

    A record that is damaged counts as missing, and the reason says so.

    Raises:
        NotARun: there is no run.json, nor any other sign of a run.
        StoreError: the storage refused.
    """
    faults: list[str] = []
    ending = read_or_none(storage, ExitRecord, ExitRecord.KEY, faults)
    supervisor = read_or_none(storage, SupervisorRecord, SupervisorRecord.KEY, faults)
    # A supervisor speaks for all ranks, the hook of rank 0 for itself.
    if ending is not None and supervisor is not None:
        return _ended(ending)
    signs = signs_of_life(storage, storage.list("heartbeat/"), faults)
    if ending is not None and not any(
        sign.rank and sign.goes_on and not sign.closed for sign in signs
    ):
        return _ended(ending)
    step = max((sign.last_step for sign in signs if sign.last_step >= 0), default=None)
    begun = len(signs)
    if _lives(supervisor, signs) or (not supervisor and _more_may_begin(storage, begun, faults)):
        return Status("running", "; ".join([*_missed(signs), *faults]), step=step)
    reason = "no process runs it any more, and none wrote down how it ended"
    return Status("dead", "; ".join([reason, *faults]), step=step)


def rank_is_over(storage: Storage, rank: int) -> bool:
    """Say whether one process of a run will write nothing more; not before its first heartbeat.

    Raises:
        StoreError: the storage refused.
    """
    signs = signs_of_life(storage, [heartbeat_key(rank)], [])
    return any(sign.closed or not sign.goes_on for sign in signs)


def _ended(record: ExitRecord) -> Status:
    stop = record.stop or {}
    return Status(
        state=record.cause,
        reason=record.reason,
        by=stop.get("by", ""),
        rule=stop.get("rule", ""),
        step=record.last_step,
        code=record.code,
        signal=record.signal,
        ended=record.ended,
    )


def _lives(supervisor: SupervisorRecord | None, signs: list[Sign]) -> bool:
    """Say whether the supervisor lives, or any process that writes."""
    if supervisor is not None:
        alive = lives(supervisor.supervisor)
        started_lately = time.time() - supervisor.started < _STARTING
        if alive or (alive is None and not signs and started_lately):
            return True
    return any(sign.goes_on for sign in signs)


def _missed(signs: list[Sign]) -> list[str]:
    """Return a sentence for each rank that has died or is silent, while others may wait for it."""
    said = []
    for sign in sorted(signs, key=lambda sign: sign.rank):
        if not sign.closed and not sign.goes_on:
            said.append(f"rank {sign.rank} is gone")
        elif not sign.closed and sign.silent:
            said.append(
                f"rank {sign.rank} has been silent for {sign.silent:.0f} s: it has died, or what "
                f"it captures does not reach the store now; it counts as gone after {LOST:.0f} s"
            )
    return said


def _more_may_begin(storage: Storage, begun: int, faults: list[str]) -> bool:
    """Say whether ranks are still to begin, besides so many that have shown a sign of life."""
    record = read_record(storage, RunRecord)
    if record is None:
        raise NotARun(f"{storage.location}: not a run: there is no {RunRecord.KEY}")
    if begun >= record.world_size:
        return False
    launch = read_or_none(storage, LaunchRecord, LaunchRecord.KEY, faults)
    owner = lives(launch.owner) if launch is not None and launch.owner else None
    # Prepared runs wait for their turn as long as the process lives that will start them.
    return time.time() - record.created < _STARTING if owner is None else owner
