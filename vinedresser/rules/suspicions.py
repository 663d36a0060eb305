"""What the rules of a group suspect at the values of a metric, in the run directory."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

from vinedresser.rules.findings_file import finding_line
from vinedresser.store.finding import Finding
from vinedresser.store.records import (
    Record,
    read_record,
    suspicions_key,
    write_record,
)
from vinedresser.store.storage import Storage

if TYPE_CHECKING:
    from vinedresser.rules.engine import Engine
    from vinedresser.store.reading.step import Step

__all__ = ["SuspicionRecord", "SuspicionWriter", "read_suspicions"]


@dataclass(frozen=True)
class SuspicionRecord(Record):
    """What a group of rules suspected at the last value of a metric (`Rule.suspicion`).

    Attributes:
        step: at which the value was reported.
        findings: which would end the run if the outcome agreed, the likely cause first.
    """

    KEY: ClassVar[str] = "suspicions"

    step: int
    findings: list[dict[str, Any]]


class SuspicionWriter:
    """Writes down what the rules suspect whenever a metric has a new value.

    Args:
        storage: the run's.
        group: of the rules.
        metric: a metric or loss, without its collection.
        mode: in which it is recorded.
        stops: says of a finding whether it would end the run; others are left out.
    """

    def __init__(
        self,
        storage: Storage,
        group: str,
        metric: str,
        mode: str,
        stops: Callable[[Finding], bool],
    ) -> None:
        self._storage = storage
        self._key = suspicions_key(group)
        self._names = {f"{collection}/{metric}" for collection in ("losses", "metrics")}
        self._mode = mode
        self._stops = stops

    def take(self, step: Step, engine: Engine) -> None:
        """Take in a step that the rules have seen.

        Raises:
            StoreError: the storage refused.
        """
        if step.rank != 0 or step.mode != self._mode or self._names.isdisjoint(step.scalars):
            return
        found = [one for one in engine.suspicions() if self._stops(one)]
        record = SuspicionRecord(step.step, [json.loads(finding_line(one)) for one in found])
        write_record(self._storage, record, key=self._key)


def read_suspicions(storage: Storage, group: str) -> tuple[int, list[Finding]] | None:
    """Return at which step a group of rules last wrote what it suspects, and that; None: never yet.

    Raises:
        CorruptData: the record is not one.
        StoreError: the storage refused.
    """
    record = read_record(storage, SuspicionRecord, key=suspicions_key(group))
    if record is None:
        return None
    return record.step, [Finding.from_json(one) for one in record.findings]
