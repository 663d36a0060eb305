"""The status of a run: running, or how it ended."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Literal

from vinedresser.errors import NotARun
from vinedresser.objects import Storage
from vinedresser.store.liveness import (
    LOST_AFTER,
    RankLiveness,
    claimer_is_gone,
    last_sign,
    process_alive,
    rank_liveness,
    read_record_or_none,
)
from vinedresser.store.records import (
    ExitRecord,
    Heartbeat,
    LaunchRecord,
    RunRecord,
    SupervisorRecord,
    heartbeat_key,
    known_keys,
    read_record,
)

__all__ = ["RunState", "Status", "rank_is_over", "run_status"]

RunState = Literal["running", "finished", "stopped", "crashed", "killed", "dead", "unreadable"]

_BY = {
    "sweep": " by its sweep",
    "person": " on request",
    "owner": " by the end of its owner",
    "limit": " by its limit",
}
# Seconds that a run may take from its creation to its first heartbeat.
_START_TIMEOUT = 60.0
# Seconds after which a supervisor on another machine, of a training without heartbeats, counts as
# gone: it measures the load of the machine at least every five minutes.
_UNSEEN = 360.0


@dataclass(frozen=True)
class Status:
    """The status of a run.

    Attributes:
        state: "running"; or how the run ended: "finished" (exit code 0), "stopped" (by a rule, a
            person or its owner), "crashed" (failed on its own), "killed" (by a signal from
            outside); "dead": no process runs it and no exit was recorded; or "unreadable": its
            run.json is damaged (only in tables of runs: `run_status` raises).
        reason: one sentence; for a running run, ranks that are gone or silent; "" if there is
            nothing to report.
        by: "rule", "sweep", "person", "owner" or "limit" for a stopped run; else "".
        rule: name of the rule that requested the stop; else "".
        step: last completed optimizer step, None if unknown.
        code: exit code, None if a signal ended the run or the code is unknown.
        signal: name of the signal that ended the run; else "".
        ended: end time in seconds since the epoch; None if it is running or the time is unknown.
        problems: one sentence for each damaged record.
    """

    state: RunState
    reason: str = ""
    by: str = ""
    rule: str = ""
    step: int | None = None
    code: int | None = None
    signal: str = ""
    ended: float | None = None
    problems: tuple[str, ...] = ()

    @property
    def over(self) -> bool:
        """Whether the run has ended."""
        return self.state != "running"

    @property
    def words(self) -> str:
        """The state in a few words, such as "stopped by overfitting at step 120"."""
        if self.state != "stopped" or self.step is None:
            return self.ending
        return f"{self.ending} at step {self.step:,}"

    @property
    def ending(self) -> str:
        """The state without the step, such as "stopped by overfitting"."""
        if self.state != "stopped":
            return self.state
        return "stopped" + (f" by {self.rule}" if self.rule else _BY.get(self.by, ""))

    def steps_saved(self, total: int | None) -> int | None:
        """Return the number of steps that stopping the run saved.

        Args:
            total: number of optimizer steps in a whole run, None if unknown.

        Returns:
            None if that is unknown, and for a run that a rule, a sweep or a person did not stop:
            a crash saves nothing.
        """
        if self.state != "stopped" or self.by == "owner" or self.step is None or not total:
            return None
        return max(total - self.step - 1, 0)


def run_status(storage: Storage) -> Status:
    """Return the status of the run in a storage.

    A damaged record counts as missing; the problems name it.

    Raises:
        NotARun: there is neither a run.json nor any heartbeat.
        StoreError: the storage refused.
    """
    faults: list[str] = []
    exited = read_record_or_none(storage, ExitRecord, ExitRecord.KEY, faults)
    supervisor = read_record_or_none(storage, SupervisorRecord, SupervisorRecord.KEY, faults)
    # A supervisor reports the exit of all ranks, the hook of rank 0 only its own.
    if exited is not None and supervisor is not None:
        return _ended(exited, faults)
    ranks = rank_liveness(storage, known_keys(storage, Heartbeat.KEY, faults), faults)
    if exited is not None and not any(
        each.rank and each.alive and not each.closed for each in ranks
    ):
        return _ended(exited, faults)
    step = max((each.last_step for each in ranks if each.last_step >= 0), default=None)
    if _has_live_process(storage, supervisor, ranks) or (
        not supervisor and _may_start(storage, len(ranks), faults)
    ):
        reason = "; ".join(_missing_ranks(ranks))
        return Status("running", reason, step=step, problems=tuple(faults))
    sign = last_sign(storage)
    silent = f"nothing was heard from {sign.host} after {sign.when}"
    reason = f"{silent if sign.host else 'no process runs it'} and no exit was recorded"
    return Status("dead", reason, step=step, problems=tuple(faults))


def rank_is_over(storage: Storage, rank: int) -> bool:
    """Return whether a rank will write nothing more; False before its first heartbeat.

    Raises:
        StoreError: the storage refused.
    """
    ranks = rank_liveness(storage, [heartbeat_key(rank)], [])
    return any(each.closed or not each.alive for each in ranks)


def _ended(record: ExitRecord, faults: list[str]) -> Status:
    stop = record.stop
    return Status(
        state=record.cause,
        reason=record.reason,
        by=stop.by if stop else "",
        rule=stop.rule if stop else "",
        step=record.last_step,
        code=record.code,
        signal=record.signal,
        ended=record.ended,
        problems=tuple(faults),
    )


def _has_live_process(
    storage: Storage, supervisor: SupervisorRecord | None, ranks: list[RankLiveness]
) -> bool:
    """Return whether the supervisor or any rank is alive."""
    if supervisor is not None:
        alive = process_alive(supervisor.supervisor)
        if alive is None and not ranks:
            last = last_sign(storage).time
            patience = _UNSEEN if last > supervisor.started else _START_TIMEOUT
            alive = time.time() - last < patience
        if alive:
            return True
    return any(each.alive for each in ranks)


def _missing_ranks(ranks: list[RankLiveness]) -> list[str]:
    """Return a sentence for each rank that is gone or silent."""
    sentences = []
    for each in sorted(ranks, key=lambda each: each.rank):
        if not each.closed and not each.alive:
            sentences.append(f"rank {each.rank} is gone")
        elif not each.closed and each.silent:
            sentences.append(
                f"rank {each.rank} has been silent for {each.silent:.0f} s: it has died, its "
                "heartbeats do not arrive, or its clock is behind; it counts as gone after "
                f"{LOST_AFTER:.0f} s"
            )
    return sentences


def _may_start(storage: Storage, started: int, faults: list[str]) -> bool:
    """Return whether more ranks may still start, besides those with a heartbeat."""
    record = read_record(storage, RunRecord)
    if record is None:
        raise NotARun(f"{storage.location}: not a run: there is no {RunRecord.KEY}")
    if started >= record.world_size:
        return False
    launch = read_record_or_none(storage, LaunchRecord, LaunchRecord.KEY, faults)
    if launch is None and claimer_is_gone(storage):
        return False
    owner = process_alive(launch.owner) if launch is not None and launch.owner else None
    # Prepared runs wait for their start as long as the process that will start them is alive.
    return time.time() - record.created < _START_TIMEOUT if owner is None else owner
