"""How a run stands: is it running, and if not, how did it end."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Any, Literal, TypeVar

from vinedresser.errors import Damaged, NotARun
from vinedresser.infra.processes import ProcessIdentity, is_alive
from vinedresser.infra.run_directory import (
    ExitRecord,
    Heartbeat,
    LaunchRecord,
    Record,
    RunRecord,
    SupervisorRecord,
    heartbeat_key,
    read_record,
)
from vinedresser.infra.storage import Storage

__all__ = ["RunState", "Status", "rank_is_over", "run_status"]

RunState = Literal["running", "finished", "stopped", "crashed", "killed", "dead"]

R = TypeVar("R", bound=Record)

# Seconds without a sign of life from another machine, after which a process counts as gone.
_STALE = 5.0
# Seconds that a run may take from its making to the first sign of life.
_STARTING = 60.0


@dataclass(frozen=True)
class Status:
    """How a run stands.

    Attributes:
        state: "running"; or how it ended: "finished" (exit code 0), "stopped" (asked to by a rule,
            a person or its owner), "crashed" (it failed by itself), "killed" (by a signal from
            outside); or "dead": nobody runs it any more, and nobody wrote down how it ended.
        reason: one sentence; while it runs, which ranks are gone; "" where nothing is to be said.
        by: of a stopped run, "rule", "person" or "owner"; else "".
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
    ending = _read(storage, ExitRecord, ExitRecord.KEY, faults)
    supervisor = _read(storage, SupervisorRecord, SupervisorRecord.KEY, faults)
    # A supervisor speaks for all ranks, the hook of rank 0 for itself.
    if ending is not None and supervisor is not None:
        return _ended(ending)
    beats = _heartbeats(storage, faults)
    if ending is not None and not any(beat.rank and _writes(beat) for beat in beats):
        return _ended(ending)
    step = max((beat.last_step for beat in beats if beat.last_step >= 0), default=None)
    begun = len(beats)
    if _lives(supervisor, beats) or (not supervisor and _more_may_begin(storage, begun, faults)):
        return Status("running", "; ".join([*_gone(beats), *faults]), step=step)
    reason = "no process runs it any more, and none wrote down how it ended"
    return Status("dead", "; ".join([reason, *faults]), step=step)


def rank_is_over(storage: Storage, rank: int) -> bool:
    """Say whether one process of a run will write nothing more; not before its first heartbeat.

    Raises:
        StoreError: the storage refused.
    """
    beat = _read(storage, Heartbeat, heartbeat_key(rank), [])
    return beat is not None and (beat.closed or not _beats(beat))


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


def _read(storage: Storage, kind: type[R], key: str, faults: list[str]) -> R | None:
    try:
        return read_record(storage, kind, key=key)
    except Damaged as error:
        faults.append(str(error))
        return None


def _heartbeats(storage: Storage, faults: list[str]) -> list[Heartbeat]:
    found = (_read(storage, Heartbeat, key, faults) for key in storage.list("heartbeat/"))
    return [beat for beat in found if beat is not None]


def _lives(supervisor: SupervisorRecord | None, beats: list[Heartbeat]) -> bool:
    """Say whether the supervisor lives, or any process that writes."""
    if supervisor is not None:
        alive = _alive(supervisor.supervisor)
        started_lately = time.time() - supervisor.started < _STARTING
        if alive or (alive is None and not beats and started_lately):
            return True
    return any(_beats(beat) for beat in beats)


def _beats(beat: Heartbeat) -> bool:
    """Say whether the process behind a heartbeat lives, as far as can be known from here."""
    alive = _alive(beat.process)
    return time.time() - beat.time < _STALE if alive is None else alive


def _gone(beats: list[Heartbeat]) -> list[str]:
    """Return a sentence for each rank that has died, while others live that may wait for it."""
    return [
        f"rank {beat.rank} is gone"
        for beat in sorted(beats, key=lambda beat: beat.rank)
        if not beat.closed and not _beats(beat)
    ]


def _writes(beat: Heartbeat) -> bool:
    """Say whether the process behind a heartbeat may still write."""
    return not beat.closed and _beats(beat)


def _alive(process: dict[str, Any]) -> bool | None:
    """Say whether a process lives; None when that cannot be known from here."""
    try:
        return is_alive(ProcessIdentity(**process))
    except (TypeError, ValueError):
        # Not the fields of an identity: a record of another version, or a damaged one.
        return None


def _more_may_begin(storage: Storage, begun: int, faults: list[str]) -> bool:
    """Say whether ranks are still to begin, besides so many that have shown a sign of life."""
    record = read_record(storage, RunRecord)
    if record is None:
        raise NotARun(f"{storage.location}: not a run: there is no {RunRecord.KEY}")
    if begun >= record.world_size:
        return False
    launch = _read(storage, LaunchRecord, LaunchRecord.KEY, faults)
    owner = _alive(launch.owner) if launch is not None and launch.owner else None
    # Prepared runs wait for their turn as long as the process lives that will start them.
    return time.time() - record.created < _STARTING if owner is None else owner
