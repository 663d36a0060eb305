"""What a run is that takes the place of one that a rule has stopped."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar

from vinedresser.store.records.record import Record

__all__ = ["RemedyRecord", "describe_changes"]


@dataclass(frozen=True)
class RemedyRecord(Record):
    """An attempt to remedy what a rule found; it lies in run.json, as the field of that name.

    Attributes:
        first: name of the run with which it began: the one as the user wanted it.
        attempt: 1 for the first one in its place, and so on.
        stopped: name of the run that the rule stopped: the first one, or the attempt before.
        finding: that of the rule, as JSON, with the correction.
        changed: of each hyperparameter that is another one than in the stopped run, the values
            there and here.
        checkpoint: of the stopped run, from which this one begins, as a key; "" where it begins
            from the start.
    """

    KEY: ClassVar[str] = "remedy"

    first: str
    attempt: int
    stopped: str
    finding: dict[str, Any]
    changed: dict[str, list[Any]] = field(default_factory=dict)
    checkpoint: str = ""

    @property
    def change(self) -> str:
        """What was changed, in words, such as "lr 1 instead of 100"."""
        return describe_changes(self.changed)

    @property
    def beginning(self) -> str:
        """Where it begins, in words."""
        return f"from {self.checkpoint} of {self.stopped}" if self.checkpoint else "from the start"


def describe_changes(changed: Mapping[str, Sequence[Any]]) -> str:
    """Return a change of hyperparameters in words.

    Args:
        changed: by name, the old value and the new one.
    """
    return ", ".join(
        f"{name} {_shown(new)} instead of {_shown(old)}" for name, (old, new) in changed.items()
    )


def _shown(value: object) -> str:
    return f"{value:g}" if isinstance(value, float) else str(value)
