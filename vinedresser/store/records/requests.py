"""Records of requests to a run, the answers to them, and actions taken on findings."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, ClassVar, Literal

from vinedresser.processes import ProcessIdentity
from vinedresser.store.json_values import DAMAGE, parse_json
from vinedresser.store.records.record import Record

__all__ = [
    "ActionRecord",
    "CaptureChange",
    "CapturePaceRecord",
    "CaptureRequest",
    "ClaimRecord",
    "ControlRecord",
    "StopStepRecord",
    "TagsRecord",
    "TrainerAnswer",
    "TrainerRequest",
    "TrainerRequestKind",
    "WaitingRecord",
]

TrainerRequestKind = Literal[
    "checkpoint", "adjust", "snapshot", "pause", "resume", "stop", "inject"
]


@dataclass(frozen=True)
class WaitingRecord(Record):
    """A waiting reader: commit steps immediately until this time, not in batches."""

    KEY: ClassVar[str] = "waiting.json"

    until: float


@dataclass(frozen=True)
class StopStepRecord(Record):
    """The number of finished train steps after which all ranks stop; rank 0 decides it."""

    KEY: ClassVar[str] = "stop_step.json"

    steps: int


@dataclass(frozen=True)
class CapturePaceRecord(Record):
    """How much less often the ranks of a run capture what only rules need; rank 0 decides it.

    Attributes:
        changes: the latest changes, the oldest first: the first step, and the factor of the
            intervals from then on.
    """

    KEY: ClassVar[str] = "capture_pace.json"

    changes: list[list[int]]

    def __post_init__(self) -> None:
        """Refuse changes that are not pairs of numbers in order."""
        steps = [-1]
        for change in self.changes:
            since, factor = change
            if since <= steps[-1] or factor < 1:
                raise ValueError(f"changes: {change} is not a later step and a factor from 1")
            steps.append(since)


@dataclass(frozen=True)
class CaptureRequest(Record):
    """A request to change what a run captures.

    Attributes:
        collections: the changed collections, with their new save configs.
        time: seconds since the epoch.
        steps: number of steps after which the change is reverted; None: permanent.
    """

    KEY: ClassVar[str] = "capture_requests"

    collections: dict[str, Any]
    time: float
    steps: int | None = None


@dataclass(frozen=True)
class CaptureChange(Record):
    """The answer of a rank's hook to a `CaptureRequest`.

    Attributes:
        step: first step with the new configuration.
        capture: the capture configuration from this step on.
        refused: reason for a refusal, else "".
        time: seconds since the epoch.
    """

    KEY: ClassVar[str] = "capture_changes"

    step: int
    capture: dict[str, Any]
    time: float
    refused: str = ""


@dataclass(frozen=True)
class ClaimRecord(Record):
    """The processes that write a run whose script creates no hook; the first ones win.

    Attributes:
        processes: identity of a single process as JSON, or id of the job of several ranks.
    """

    KEY: ClassVar[str] = "claim.json"

    processes: str

    @property
    def process(self) -> ProcessIdentity | None:
        """The single process; None for a job of several ranks."""
        try:
            return ProcessIdentity(**parse_json(self.processes))
        except DAMAGE:
            return None


@dataclass(frozen=True)
class ActionRecord(Record):
    """An action taken on a finding.

    Attributes:
        id: identifies this action on this finding of this run.
        action: name of the action.
        rule: name of the rule with the finding.
        step: step of the finding.
        time: seconds since the epoch.
        outcome: "done"; "refused" (permanently) or "failed" (retrying may help).
        detail: the result, one sentence.
    """

    KEY: ClassVar[str] = "actions"

    id: str
    action: str
    rule: str
    step: int
    time: float
    outcome: Literal["done", "refused", "failed"]
    detail: str = ""


@dataclass(frozen=True)
class TagsRecord(Record):
    """Tags that the rules of a group give the run.

    Attributes:
        tags: tag by name of the rule.
    """

    KEY: ClassVar[str] = "tags"

    tags: dict[str, str]


@dataclass(frozen=True)
class TrainerRequest(Record):
    """A request to the trainer, which it fulfils between two steps.

    Attributes:
        id: the same for repeated requests.
        kind: "checkpoint"; "adjust" for a parameter that the user declared tunable; "snapshot" of
            the next step; "pause" or "resume"; "stop" for a run without a supervisor; "inject" for
            the loss and gradients of the batch of a snapshot.
        reason: one sentence.
        time: seconds since the epoch.
        parameter: name of the parameter to adjust, else "".
        factor: factor to multiply the parameter by; None if a value is given.
        value: new value of the parameter; None if a factor is given.
        at: number of completed steps from which it applies; None: the next boundary.
        event: name of the event at which it applies, such as "epoch"; "": between two steps.
        checkpoint_first: save a checkpoint before the change.
        seconds: maximum length of a pause; None: an hour.
        snapshot: location of the snapshot whose batch is injected, else "".
    """

    KEY: ClassVar[str] = "trainer_requests"

    id: str
    kind: TrainerRequestKind
    reason: str
    time: float
    parameter: str = ""
    factor: float | None = None
    value: float | None = None
    at: int | None = None
    event: str = ""
    checkpoint_first: bool = False
    seconds: float | None = None
    snapshot: str = ""


@dataclass(frozen=True)
class TrainerAnswer(Record):
    """The answer of a rank's hook to a `TrainerRequest`.

    Attributes:
        step: number of optimizer steps done, which is the first step it applies to.
        time: seconds since the epoch.
        refused: reason for a refusal, else "".
        files: keys of the files of a checkpoint.
        old: previous value of a parameter, for each parameter group of the optimizer.
        new: new value, likewise.
        told: what an injected batch gave, in words.
    """

    KEY: ClassVar[str] = "trainer_answers"

    step: int
    time: float
    refused: str = ""
    files: list[str] = field(default_factory=list)
    old: list[float] = field(default_factory=list)
    new: list[float] = field(default_factory=list)
    told: str = ""


@dataclass(frozen=True)
class ControlRecord(Record):
    """A line of the journal of everything that was changed in a running training from outside.

    Attributes:
        step: number of optimizer steps done, which is the first step it applies to.
        time: seconds since the epoch.
        kind: kind of the request; "resume" ends a pause.
        reason: one sentence.
        parameter: name of the changed parameter, else "".
        old: previous value, for each parameter group of the optimizer.
        new: new value, likewise.
        files: keys of the files of a checkpoint.
        seconds: length of the pause that ended, in seconds; None for other kinds.
        told: what an injected batch gave, in words.
    """

    KEY: ClassVar[str] = "controls.jsonl"
    ENTRY: ClassVar[str] = "a change"

    step: int
    time: float
    kind: TrainerRequestKind
    reason: str = ""
    parameter: str = ""
    old: list[float] = field(default_factory=list)
    new: list[float] = field(default_factory=list)
    files: list[str] = field(default_factory=list)
    seconds: float | None = None
    told: str = ""

    @property
    def words(self) -> str:
        """The change in a few words, such as "lr 0.1 → 0.01"."""
        if self.kind == "adjust":
            old, new = (", ".join(f"{one:g}" for one in some) for some in (self.old, self.new))
            return f"{self.parameter} {old or 'unset'} → {new}"
        if self.kind == "inject":
            return f"injected batch: {self.told}"
        if self.kind == "resume" and self.seconds is not None:
            return f"resumed after {self.seconds:.0f} s"
        return {"pause": "paused", "resume": "resumed"}.get(self.kind, self.kind)
