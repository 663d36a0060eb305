"""A writer of a few records, each in a segment of its own."""

from __future__ import annotations

from itertools import islice
from pathlib import Path
from typing import Any

from vinedresser.store.storage import LocalStorage
from vinedresser.store.writing.writer import RunWriter
from vinedresser.testing.writing import known_records

__all__ = ["RECORDS", "write"]

RECORDS = 3


def write(folder: Path) -> dict[str, Any]:
    """Write the run and return what the writer says of losses."""
    writer = RunWriter(LocalStorage(folder))
    for record in islice(known_records(0), RECORDS):
        writer.add(record)
        writer.flush()
    writer.close()
    return {"dropped": writer.dropped, "problems": writer.problems}
