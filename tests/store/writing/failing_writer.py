"""A writer of a few records, each in a segment of its own."""

from __future__ import annotations

from collections.abc import Iterable
from functools import cache
from itertools import islice
from pathlib import Path
from typing import Any

from vinedresser.store.step_record import StepRecord
from vinedresser.store.storage import LocalStorage
from vinedresser.store.writing.writer import RunWriter
from vinedresser.testing.runs import step_record
from vinedresser.testing.writing import known_records

__all__ = ["LONG", "RECORDS", "write", "write_long"]

RECORDS = 3
LONG = "losses/loss"


def write(folder: Path) -> dict[str, Any]:
    """Write the run and return what the writer says of losses."""
    return _write(folder, islice(known_records(0), RECORDS))


def write_long(folder: Path) -> dict[str, Any]:
    """Write records with so many scalars that packing them takes large allocations."""
    return _write(folder, _long_records())


@cache
def _long_records() -> list[StepRecord]:
    """Return records made before any allocation fails; the matrix of each takes 1.1 MiB."""
    names = [LONG, *(f"metrics/{number}" for number in range(140_000))]
    scalars = (dict.fromkeys(names, float(step)) for step in range(RECORDS))
    return [step_record(step, scalars=each, at=1e9) for step, each in enumerate(scalars)]


def _write(folder: Path, records: Iterable[StepRecord]) -> dict[str, Any]:
    writer = RunWriter(LocalStorage(folder))
    for record in records:
        writer.add(record)
        writer.flush()
    writer.close()
    return {"dropped": writer.dropped, "problems": writer.problems}
