"""A writer of a few records, each in a segment of its own."""

from __future__ import annotations

from collections.abc import Iterable
from functools import cache
from itertools import islice
from pathlib import Path
from typing import Any

from vinedresser.objects import LocalStorage
from vinedresser.store.step_record import StepRecord
from vinedresser.store.writing.writer import RunWriter
from vinedresser.testing.runs import step_record
from vinedresser.testing.writing import known_records

__all__ = ["LONG", "RECORDS", "write", "write_long", "write_many_names"]

RECORDS = 3
LONG = "losses/loss"


def write(folder: Path) -> dict[str, Any]:
    """Write the run and return what the writer says of losses."""
    return _write(folder, islice(known_records(0), RECORDS))


def write_long(folder: Path) -> dict[str, Any]:
    """Write records with so many scalars that packing them takes large allocations."""
    return _write(folder, _long_records())


def write_many_names(folder: Path) -> dict[str, Any]:
    """Write records, all in one segment, of whose data only the names take large allocations."""
    return _write(folder, _long_records(25_000, digits=50), one_by_one=False)


@cache
def _long_records(scalars_each: int = 140_000, digits: int = 1) -> list[StepRecord]:
    """Return records made before any allocation fails; of 140,000, the matrix takes 1.1 MiB."""
    names = [LONG, *(f"metrics/{number:0{digits}}" for number in range(scalars_each))]
    scalars = (dict.fromkeys(names, float(step)) for step in range(RECORDS))
    return [step_record(step, scalars=each, at=1e9) for step, each in enumerate(scalars)]


def _write(
    folder: Path, records: Iterable[StepRecord], *, one_by_one: bool = True
) -> dict[str, Any]:
    writer = RunWriter(LocalStorage(folder), cut_bytes=1 << 30)
    for record in records:
        writer.add(record)
        if one_by_one:
            writer.flush()
    writer.close()
    return {"dropped": writer.dropped, "problems": writer.problems}
