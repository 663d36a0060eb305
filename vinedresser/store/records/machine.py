"""The machine on which a run trained, and what was installed there."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar

from vinedresser.store.records.record import Record


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
