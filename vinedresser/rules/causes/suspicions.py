"""The suspicions of a rule group at each value of a metric, in the run directory."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar

from vinedresser.objects import Storage
from vinedresser.rules.engine import Engine
from vinedresser.rules.findings_file import finding_line
from vinedresser.store.finding import Finding
from vinedresser.store.reading.results import results_of
from vinedresser.store.reading.step import Step
from vinedresser.store.records import Record, read_record, suspicions_key, write_record

__all__ = ["SuspicionRecord", "SuspicionWriter", "read_suspicions"]


@dataclass(frozen=True)
class SuspicionRecord(Record):
    """The suspicions of a rule group at the last value of a metric (`Rule.suspicion`).

    Attributes:
        findings: findings that would stop the run if the outcome were bad, in the rules' order.
    """

    KEY: ClassVar[str] = "suspicions"

    step: int
    findings: list[dict[str, Any]]


class SuspicionWriter:
    """Stores the rules' suspicions whenever a metric has a new value.

    Args:
        group: name of the rule group.
        metric: name of a metric or loss, without its collection.
        mode: mode in which it is recorded.
        stops: returns whether a finding would stop the run; others are ignored.
    """

    def __init__(
        self, storage: Storage, group: str, metric: str, mode: str, stops: Callable[[Finding], bool]
    ) -> None:
        self._storage = storage
        self._key = suspicions_key(group)
        self._metric = metric
        self._mode = mode
        self._stops = stops

    def take(self, step: Step, engine: Engine) -> None:
        """Process a step after the rules.

        Raises:
            StoreError: the storage refused.
        """
        if step.rank != 0 or step.mode != self._mode or self._metric not in results_of(step):
            return
        found = [suspicion for suspicion in engine.suspicions() if self._stops(suspicion)]
        record = SuspicionRecord(step.step, [json.loads(finding_line(one)) for one in found])
        write_record(self._storage, record, key=self._key)


def read_suspicions(storage: Storage, group: str) -> tuple[int, list[Finding]] | None:
    """Return the step and findings of a group's last suspicions; None if there are none yet.

    Raises:
        CorruptData: the record is invalid.
        StoreError: the storage refused.
    """
    record = read_record(storage, SuspicionRecord, key=suspicions_key(group))
    if record is None:
        return None
    return record.step, [Finding.from_json(finding) for finding in record.findings]
