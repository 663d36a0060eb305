"""Records of actions taken on findings, and of requests to the trainer."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar, Literal

from vinedresser.store.records.record import Record

__all__ = ["ActionRecord", "TagsRecord", "TrainerAnswer", "TrainerRequest"]


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
        kind: "checkpoint", or "adjust" for a parameter that the user declared tunable.
        reason: one sentence.
        time: seconds since the epoch.
        parameter: name of the parameter to adjust, else "".
        factor: factor to multiply the parameter by; None if a value is given.
        value: new value of the parameter; None if a factor is given.
    """

    KEY: ClassVar[str] = "trainer_requests"

    id: str
    kind: Literal["checkpoint", "adjust"]
    reason: str
    time: float
    parameter: str = ""
    factor: float | None = None
    value: float | None = None


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
    """

    KEY: ClassVar[str] = "trainer_answers"

    step: int
    time: float
    refused: str = ""
    files: list[str] = field(default_factory=list)
    old: list[float] = field(default_factory=list)
    new: list[float] = field(default_factory=list)
