"""The machine on which a run trained, what was installed there, and its load."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar

from vinedresser.store.json_values import check_time
from vinedresser.store.records.record import Record

__all__ = ["MachineRecord", "SystemRecord"]


@dataclass(frozen=True)
class MachineRecord(Record):
    """What a training found on its machine.

    Attributes:
        host: name of the machine.
        user: name of the user; "" if the user id has none.
        processor: its name, "" if unknown.
        cores: number of cores that the training may use.
        memory: bytes of memory.
        gpus: names of the GPUs of NVIDIA in the machine.
        environment: variables that change how a training computes, by name.
        packages: versions of the installed Python packages by name; {} if the training has another
            interpreter than the supervisor.
    """

    KEY: ClassVar[str] = "machine.json"

    host: str
    user: str = ""
    processor: str = ""
    cores: int = 0
    memory: int = 0
    gpus: list[str] = field(default_factory=list)
    environment: dict[str, str] = field(default_factory=dict)
    packages: dict[str, str] = field(default_factory=dict)


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
