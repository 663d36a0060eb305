"""The record of what replays of a snapshot found, beside the snapshot."""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from typing import ClassVar, Self

from vinedresser.objects import Storage
from vinedresser.snapshots.record import SnapshotRecord
from vinedresser.store.json_values import check_time, shown
from vinedresser.store.liveness import read_record_or_none
from vinedresser.store.records import Record, write_record

__all__ = ["ReplayRecord", "TriedChange", "read_replay", "replay_key", "save_replay"]


@dataclass(frozen=True)
class TriedChange(Record):
    """A change that was tried on a snapshot.

    Attributes:
        change: the change in words.
        result: how its steps ended.
        verdict: "cures it", "better, no proof" (the controls do not allow a claim), or "-"; of a
            control, "cures it, control" or "-, control".
    """

    KEY: ClassVar[str] = "trials"

    change: str
    result: str
    verdict: str


@dataclass(frozen=True)
class ReplayRecord(Record):
    """What replays of a snapshot found, in words for readers; "" if they did not look for it.

    Attributes:
        time: seconds since the epoch.
        same: how the replay compares with the training.
        operation: the operation that broke the step.
        place: where the program calls it.
        samples: the samples that broke the step.
        tried: what follows from the changes that were tried.
        trials: the changes, as JSON of `TriedChange`.
        symptom: what is wrong without a change, such as "the loss does not fall".
        cures: kinds of changes that cure it, as the experiment proves, the best first, each with
            the value before and after, or [] if it is not that of a number.
        lasting: whether what broke the step lasts.
    """

    KEY: ClassVar[str] = "replay.json"

    time: float
    same: str
    operation: str = ""
    place: str = ""
    samples: str = ""
    tried: str = ""
    trials: list[dict[str, str]] = field(default_factory=list)
    symptom: str = ""
    cures: dict[str, list[float]] = field(default_factory=dict)
    lasting: str = ""

    def __post_init__(self) -> None:
        """Refuse values that readers cannot show.

        Raises:
            TypeError: an entry of the trials is not one.
            ValueError: the time is not valid, or a cure has values that are none.
        """
        check_time("time", self.time)
        for kind, values in self.cures.items():
            numbers = [
                value for value in values if type(value) in (int, float) and math.isfinite(value)
            ]
            if len(numbers) != len(values) or len(values) not in (0, 2):
                raise ValueError(f"cures has {shown(values)} for {shown(kind)}, not two numbers")
        for trial in self.trials:
            TriedChange.from_json(trial)

    @property
    def sentences(self) -> list[str]:
        """The findings in words."""
        located = " · ".join(one for one in (self.operation, self.place) if one)
        tried = f"tried: {self.tried}" if self.tried else ""
        return [one for one in (self.lasting, located, self.samples, tried) if one]

    def completed(self, earlier: Self | None) -> ReplayRecord:
        """Return the record with what only an earlier replay looked for."""
        if earlier is None:
            return self
        operation, place = self.operation, self.place
        if not operation:
            operation, place = earlier.operation, earlier.place
        newer = self if self.tried else earlier
        return replace(
            newer,
            time=self.time,
            same=self.same,
            lasting=self.lasting,
            operation=operation,
            place=place,
            samples=self.samples or earlier.samples,
        )


def replay_key(name: str) -> str:
    """Return the key of the record for a snapshot with a name."""
    return f"{SnapshotRecord.KEY}/{name}/{ReplayRecord.KEY}"


def read_replay(storage: Storage, name: str, faults: list[str]) -> ReplayRecord | None:
    """Return what replays of a snapshot found; None if nothing was saved, or if it is damaged.

    Args:
        faults: receives a sentence if the record is damaged.

    Raises:
        StoreError: the storage refused.
    """
    return read_record_or_none(storage, ReplayRecord, replay_key(name), faults)


def save_replay(storage: Storage, name: str, record: ReplayRecord) -> None:
    """Save what a replay found, with what earlier ones have found.

    Args:
        name: name of the snapshot.

    Raises:
        StoreError: the storage refused.
    """
    complete = record.completed(read_replay(storage, name, []))
    write_record(storage, complete, key=replay_key(name))
