"""The record of a sweep, which must match when the sweep is resumed."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, Self

from vinedresser.errors import ConfigError
from vinedresser.masking import masked_arguments, masked_value
from vinedresser.store.records import EXPERIMENT_KEY, ParentRecord, Record
from vinedresser.sweeps.space import Space

__all__ = ["FLOWS", "PointRecord", "SweepRecord", "point_key"]

# In a sweep's folder, a folder with a file for each flow that runs the sweep, which locks it.
FLOWS = "flows"


@dataclass(frozen=True)
class PointRecord(Record):
    """A configuration that a person has added to a sweep.

    Attributes:
        parameters: values by name; those that are missing will be proposed.
    """

    KEY: ClassVar[str] = "enqueued"

    parameters: dict[str, Any]


def point_key(number: int) -> str:
    """Return the key of the added configuration with a number, from 0."""
    return f"{PointRecord.KEY}/{number:04d}.json"


@dataclass(frozen=True, kw_only=True)
class SweepRecord(ParentRecord):
    """A sweep as its first process created it.

    Attributes:
        space: the search space, as from `Space.to_json`.
        command: program and arguments of every trial.
        parameters: parameters of every trial in addition to its configuration.
        objectives: metric, direction, value and mode of each objective.
        epochs: number of metric values that a complete trial reports; None: unknown.
        constraints: metric, bound, value and mode of each constraint.
        population: number of members of a population; None: the sweep has none.
        warm_start: id of the sweep whose trials the sampler learns from; "" for none.
    """

    KEY: ClassVar[str] = "sweep.json"
    WORD: ClassVar[str] = "sweep"
    LOCK: ClassVar[str] = "journal.log"
    PAGE: ClassVar[str] = "sweep.html"
    FILES: ClassVar[tuple[str, ...]] = (
        KEY,
        LOCK,
        PAGE,
        EXPERIMENT_KEY,
        f"{PointRecord.KEY}/",
        "prunings/",
    )
    SAME: ClassVar[tuple[str, ...]] = (
        "space",
        "command",
        "parameters",
        "objectives",
        "epochs",
        "constraints",
        "population",
    )

    space: dict[str, Any]
    command: list[str]
    parameters: dict[str, Any]
    objectives: list[dict[str, Any]]
    epochs: int | None
    constraints: list[dict[str, Any]] = field(default_factory=list)
    population: int | None = None
    warm_start: str = ""

    def differences(self, other: Self) -> list[str]:
        """See `ParentRecord.differences`; the other space may be wider."""
        if self.space == other.space:
            return super().differences(other)
        try:
            before, after = (Space.from_json(one.space, "space") for one in (self, other))
            widened = after.widens(before)
        except ConfigError:
            # A record that another program wrote.
            widened = False
        if widened:
            return replace(self, space=other.space).differences(other)
        hint = "a space can only be widened: larger ranges with the same log and step, more choices"
        return [*super().differences(other), hint]

    def resumed(self, other: Self) -> Self:
        """See `ParentRecord.resumed`."""
        return replace(self, space=other.space, warm_start=other.warm_start)

    def to_json(self) -> dict[str, Any]:
        """See `Record.to_json`; what looks like a secret is masked."""
        return super().to_json() | {
            "command": masked_arguments(self.command),
            "parameters": masked_value("", self.parameters),
        }
