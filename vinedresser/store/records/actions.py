"""What follows a finding: what was done about it, and what is asked of the trainer."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar, Literal

from vinedresser.store.records.record import Record

__all__ = ["ActionRecord", "TagsRecord", "TrainerAnswer", "TrainerRequest"]


@dataclass(frozen=True)
class ActionRecord(Record):
    """An action that was taken because of a finding.

    Attributes:
        id: the same whenever this action is taken because of this finding of this run.
        action: its name.
        rule: whose finding it follows.
        step: of the finding.
        time: seconds since the epoch.
        outcome: "done"; "refused", which another try would not change; or "failed".
        detail: what came of it, one sentence.
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
    """What the rules of a group want the run to be marked with.

    Attributes:
        tags: by a rule's name, what it says.
    """

    KEY: ClassVar[str] = "tags"

    tags: dict[str, str]


@dataclass(frozen=True)
class TrainerRequest(Record):
    """Somebody asks the trainer for something that it does between two steps.

    Attributes:
        id: who asks twice for the same gives the same.
        kind: "checkpoint", or "adjust" a parameter that the user has declared tunable.
        reason: one sentence.
        time: seconds since the epoch.
        parameter: that is to be adjusted, "" where none is.
        factor: what it is to be multiplied by, None where a value is given.
        value: what it is to be, None where a factor is given.
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
    """What a rank's hook made of such a request.

    Attributes:
        step: how many optimizer steps were done then, so the first step to which it applies.
        time: seconds since the epoch.
        refused: why nothing was done, "" where it was.
        files: of a checkpoint, keys of what was saved.
        old: of a parameter, what it was: a number for each group that the optimizer has.
        new: what it is.
    """

    KEY: ClassVar[str] = "trainer_answers"

    step: int
    time: float
    refused: str = ""
    files: list[str] = field(default_factory=list)
    old: list[float] = field(default_factory=list)
    new: list[float] = field(default_factory=list)
