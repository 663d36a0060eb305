"""The record of a run that replaces one stopped by a rule."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar

from vinedresser.store.json_values import shown
from vinedresser.store.records.record import Record

__all__ = ["RemedyRecord", "describe_changes"]


@dataclass(frozen=True)
class RemedyRecord(Record):
    """An attempt to remedy a finding; stored in the field ``remedy`` of run.json.

    Attributes:
        first: name of the original run, as configured by the user.
        attempt: number of the attempt, from 1.
        stopped: name of the stopped run: the original run or the previous attempt.
        finding: the finding as JSON, with its correction.
        changed: old and new value of each changed hyperparameter.
        checkpoint: key of the stopped run's checkpoint that this run resumes; "" to start anew.
    """

    KEY: ClassVar[str] = "remedy"

    first: str
    attempt: int
    stopped: str
    finding: dict[str, Any]
    changed: dict[str, list[Any]] = field(default_factory=dict)
    checkpoint: str = ""

    def __post_init__(self) -> None:
        """Refuse a finding without a rule, and changes without an old and a new value."""
        if not isinstance(self.finding.get("rule"), str):
            raise TypeError(f"finding is {shown(self.finding)}, which names no rule")
        for name, pair in self.changed.items():
            if len(pair) != 2:
                raise ValueError(f"changed has {shown(pair)} for {name}, not two values")

    @property
    def change(self) -> str:
        """Description of the change, such as "lr 1 instead of 100"."""
        return describe_changes(self.changed)

    @property
    def beginning(self) -> str:
        """Description of the starting point."""
        return f"from {self.checkpoint} of {self.stopped}" if self.checkpoint else "from the start"


def describe_changes(changed: Mapping[str, Sequence[Any]]) -> str:
    """Return a description of changed hyperparameters.

    Args:
        changed: old and new value by name.
    """
    return ", ".join(
        f"{name} {_shown(new)} instead of {_shown(old)}" for name, (old, new) in changed.items()
    )


def _shown(value: object) -> str:
    return f"{value:g}" if isinstance(value, float) else str(value)
