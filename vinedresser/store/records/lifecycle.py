"""How a run is started, asked to end, and ends: the supervisor's records."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, ClassVar, Literal, Self

from vinedresser.store.records.record import Record, read_record
from vinedresser.store.storage import Storage

__all__ = [
    "ExitCause",
    "ExitRecord",
    "LaunchRecord",
    "OwnerRecord",
    "StopBy",
    "StopRecord",
    "SupervisorRecord",
    "WorkerRecord",
    "owner_of",
]

ExitCause = Literal["finished", "stopped", "crashed", "killed"]
StopBy = Literal["rule", "sweep", "person", "owner"]


@dataclass(frozen=True)
class LaunchRecord(Record):
    """What the supervisor is to start.

    Attributes:
        argv: the program and its arguments.
        cwd: the directory to start it in.
        environment: variables added to the inherited ones.
        owner: the process for which it runs; when that dies, the training is asked to end.
        grace: seconds between asking (SIGTERM) and killing (SIGKILL).
        forward: pass the training's output through to the supervisor's own, beside the log.
        patience: seconds for which it trains on without its owner, for another process to adopt it.
        gpus: how many GPUs it gets for itself; 0: it sees all.
    """

    KEY: ClassVar[str] = "launch.json"

    argv: list[str]
    cwd: str
    environment: dict[str, str] = field(default_factory=dict)
    owner: dict[str, Any] | None = None
    grace: float = 10.0
    forward: bool = False
    patience: float = 0.0
    gpus: int = 0


@dataclass(frozen=True)
class OwnerRecord(Record):
    """Who has adopted the run: a process identity, in the place of the launch record's owner."""

    KEY: ClassVar[str] = "owner.json"

    process: dict[str, Any]


@dataclass(frozen=True)
class WorkerRecord(Record):
    """Which process of a cluster runs it for its owner; the first one has it, and no other will."""

    KEY: ClassVar[str] = "worker.json"

    process: dict[str, Any]


@dataclass(frozen=True)
class SupervisorRecord(Record):
    """Who supervises: process identities of the supervisor and of the trainer it started."""

    KEY: ClassVar[str] = "supervisor.json"

    supervisor: dict[str, Any]
    trainer: dict[str, Any]
    started: float


@dataclass(frozen=True)
class StopRecord(Record):
    """Who asks the run to end, and why. The first one wins; it is never replaced.

    Attributes:
        by: "rule", "sweep" (it is worse than other trials), "person" or "owner" (the process for
            which it ran is gone).
        rule: the rule's name, "" when it was none.
        step: the step of the finding, None when there is none.
        reason: one sentence.
        time: seconds since the epoch.
        finding: the finding as JSON, None when there is none.
    """

    KEY: ClassVar[str] = "stop.json"

    by: StopBy
    reason: str
    time: float
    rule: str = ""
    step: int | None = None
    finding: dict[str, Any] | None = None


@dataclass(frozen=True)
class ExitRecord(Record):
    """How the run ended. Written last: who reads it knows that nothing more will come.

    Attributes:
        cause: "finished" (exit code 0), "stopped" (asked to by stop.json), "crashed" (it failed by
            itself) or "killed" (a signal from outside, or it vanished).
        code: its exit code, None when a signal ended it or nobody saw it end.
        signal: the signal's name, "" when there was none.
        reason: one sentence; of a crash the last line of its traceback.
        last_step: last optimizer step that ended, None when it never said.
        ended: seconds since the epoch.
        stop: the stop record when the cause is "stopped".
    """

    KEY: ClassVar[str] = "exit.json"

    cause: ExitCause
    reason: str
    ended: float
    code: int | None = None
    signal: str = ""
    last_step: int | None = None
    stop: StopRecord | None = None

    @classmethod
    def from_json(cls, document: dict[str, Any]) -> Self:
        """See `Record.from_json`."""
        if isinstance(document, dict) and document.get("stop") is not None:
            document = document | {"stop": StopRecord.from_json(document["stop"])}
        return super().from_json(document)


def owner_of(storage: Storage) -> dict[str, Any] | None:
    """Return the identity of the process for which a run goes on, the last one that there was.

    Raises:
        CorruptData: a record cannot be read.
        StoreError: the storage refused.
    """
    launch = read_record(storage, LaunchRecord)
    if launch is None or not launch.patience:
        return launch.owner if launch is not None else None
    heir = read_record(storage, OwnerRecord)
    return heir.process if heir is not None else launch.owner
