"""The load of the machine on which a run trains."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from vinedresser.store.json_values import check_time
from vinedresser.store.records.record import Record


@dataclass(frozen=True)
class SystemRecord(Record):
    """A line of the system metrics of a run: the load of its machine at one time.

    Attributes:
        time: seconds since the epoch.
        step: last completed optimizer step of rank 0; 0 before the first.
        values: system metrics by their names in MLflow without ``system/``, such as
            "cpu_utilization_percentage".

    Raises:
        ValueError: the time is none.
    """

    KEY: ClassVar[str] = "system.jsonl"
    ENTRY: ClassVar[str] = "a record of system metrics"

    time: float
    step: int
    values: dict[str, float]

    def __post_init__(self) -> None:
        """Check the time."""
        check_time("time", self.time)
